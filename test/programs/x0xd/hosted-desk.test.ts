import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, stat } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import { openDesk } from '../../../src/clients/desk.ts'
import { pathsIn } from '../../../src/clients/paths.ts'
import { programArguments } from '../../../src/supervision/own-process.ts'
import { MeshOfDaemons, until } from '../../support/mesh-of-daemons.ts'

const meshOf = async (t: TestContext): Promise<MeshOfDaemons> => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  return mesh
}

const deskProgram = (t: TestContext, dir: string) => {
  const program = new URL('../../../src/programs/desk/main.ts', import.meta.url).pathname
  const child = spawn(process.execPath, [...programArguments(program), '--data-dir', dir], { stdio: ['ignore', 'pipe', 'pipe'] })
  t.after(() => child.kill('SIGKILL'))
  return child
}

test('the daemon hosts a private approval service, x0x desk refuses to start, and the service ends with the daemon', async (t) => {
  const daemon = (await meshOf(t)).add('alice')
  await daemon.start()
  const paths = pathsIn(daemon.dir)
  for (const file of [paths.approvals, paths.approvalsSocket, paths.approvalsJournal])
    assert.equal((await stat(file)).mode & 0o777, 0o600, file)
  const human = await openDesk(paths, 'terminal')
  assert.deepEqual((await human.pending()).questions, [])
  const beside = deskProgram(t, daemon.dir)
  let said = ''
  beside.stderr.setEncoding('utf8').on('data', (text: string) => (said += text))
  assert.deepEqual(await once(beside, 'close'), [1, null])
  assert.match(said, /run by the daemon with pid \d+.*x0x approvals uses that one/)
  assert.equal(await daemon.stop(), 0)
  await human.closed
  await assert.rejects(openDesk(paths, 'terminal'), { code: 'daemon_unreachable' })
})

test('a daemon starts while x0x desk runs, and hosts the approval service after that ends', async (t) => {
  const daemon = (await meshOf(t)).add('alice')
  await mkdir(daemon.dir, { recursive: true, mode: 0o700 })
  const first = deskProgram(t, daemon.dir)
  await once(first.stdout, 'data')
  const paths = pathsIn(daemon.dir)
  const before = await readFile(paths.approvals, 'utf8')
  await daemon.start()
  const ended = once(first, 'exit')
  first.kill('SIGTERM')
  await ended
  await until('the daemon hosts the desk', async () => {
    const human = await openDesk(paths, 'terminal').catch(() => null)
    human?.close()
    return human !== null
  })
  assert.equal(await readFile(paths.approvals, 'utf8'), before)
  await daemon.stop()
})
