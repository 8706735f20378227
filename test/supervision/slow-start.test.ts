import assert from 'node:assert/strict'
import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { DIST, MeshOfDaemons, runDaemonCommand } from '../support/mesh-of-daemons.ts'
import { tempDir } from '../support/temp-dir.ts'

const skip = process.platform !== 'linux' && 'the runtime is as fast elsewhere'

test('without the native module a daemon runs commands, and the checks report slow starts', { skip }, async (t) => {
  // These bundles have no packages next to them.
  const dist = join(await tempDir(t), 'dist')
  await cp(DIST, dist, { recursive: true, filter: (source) => !source.includes('packages') })
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const alice = mesh.add('alice')
  alice.release = dist
  await alice.start()
  await alice.writeAcl([{ agent: alice, commands: [['sh', '-c', 'exit 7']] }])
  await alice.restart()
  assert.equal((await alice.cli(['exec', alice.agentId, '--', 'sh', '-c', 'exit 7'])).status, 7)
  for (const words of ['--doctor', '--check']) {
    const { stdout } = await runDaemonCommand([words, '--data-dir', alice.dir], join(dist, 'x0xd.mjs'))
    assert.match(stdout, /^warn {2}programs .*each start of a program takes about 10 ms longer: Cannot find module/m)
    assert.match(stdout, /-> npm install @koromix\/koffi-linux-/)
  }
})

test('with the native module, the doctor does not mention slow starts', { skip }, async (t) => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const alice = mesh.add('alice')
  await alice.start()
  const { stdout } = await runDaemonCommand(['--doctor', '--data-dir', alice.dir])
  assert.match(stdout, /^ok {4}runtime/m)
  assert.doesNotMatch(stdout, /programs/)
})
