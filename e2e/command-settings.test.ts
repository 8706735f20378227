import assert from 'node:assert/strict'
import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { streams } from '../src/sdk/byte-transport.ts'
import { connect } from '../src/sdk/client.ts'
import { findExecutable } from '../src/policy/executable.ts'
import { openFilesOf } from '../src/process/open-files.ts'
import { ConsolePlace } from '../test/support/console-place.ts'
import { startMcp } from '../test/support/mcp-server.ts'
import { DIST, MeshOfDaemons } from '../test/support/mesh-of-daemons.ts'
import { tempDir } from '../test/support/temp-dir.ts'
import { NO_TERMINALS, startRexd } from './rexd/server.ts'

// Umask and limit of open files that commands get at every interface. They must not depend on the umask and limit of the program that
// starts them.

const hasLimits = findExecutable('prlimit').kind === 'found' && (openFilesOf('self')?.hard ?? 0) >= 2_000
const OPTIONS = { timeout: 120_000, skip: hasLimits ? false : 'needs prlimit and /proc' }
/** Words that start a program from a shell with this umask and a soft limit of 700 open files. The shell passes SIGTERM on. */
const through = (umask: string): readonly [string, ...string[]] => [
  '/bin/sh',
  '-c',
  `umask ${umask}; ulimit -n 2000; ulimit -Sn 700; exec 3<&0; "$@" <&3 3<&- & child=$!; trap 'kill $child' TERM; wait $child; wait $child`,
  'sh',
]
const THROUGH = through('077')
const TELL = '#!/bin/sh\necho "$(umask) $(ulimit -Sn) $(ulimit -Hn)"\n'
const TOLD = '0022 700 2000'

const tellIn = async (directory: string): Promise<string> => {
  const path = join(directory, 'tell')
  await writeFile(path, TELL)
  await chmod(path, 0o755)
  return path
}

const modeOf = async (path: string): Promise<string> => ((await stat(path)).mode & 0o777).toString(8)

test('a command of the mesh gets the default settings, and the files of its daemon are private with any umask', OPTIONS, async (t) => {
  const dir = await tempDir(t)
  const tell = await tellIn(dir)
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const daemon = mesh.add('alice', { program: [...through('000'), process.execPath, join(DIST, 'x0xd.mjs')] })
  await daemon.start()
  await daemon.writeAcl([{ agent: daemon, commands: [[tell]] }])
  await daemon.restart()
  const { stdout, stderr } = await daemon.cli(['exec', daemon.agentId, '--', tell])
  assert.equal(stdout.toString().trim(), TOLD, stderr)
  const files = await readdir(daemon.dir, { recursive: true })
  const loose: string[] = []
  for (const name of files) if (/[1-7]/.test((await modeOf(join(daemon.dir, name))).padStart(3, '0').slice(1))) loose.push(name)
  assert.deepEqual(loose, [])
})

test('a command and a file of MCP get the default umask and limit of open files', OPTIONS, async (t) => {
  const server = await startMcp(t, {}, { through: THROUGH })
  await tellIn(server.root)
  const { stdout } = await server.run('exec_capture', { command: 'sh', args: ['tell'] })
  assert.equal(String(stdout).trim(), TOLD)
  await server.ask('write_file', { path: 'new/file', content: 'x', create_parents: true })
  await server.ask('write_file', { path: 'file', content: 'x' })
  assert.equal(await modeOf(join(server.root, 'file')), '644')
})

test(
  'a command, a terminal and a file of REXD get the default umask and limit of open files',
  { ...OPTIONS, skip: NO_TERMINALS ?? OPTIONS.skip },
  async (t) => {
    const { child, home } = await startRexd(t, { security: ['allow_pty = true'] }, {}, THROUGH)
    const tell = await tellIn(home.root)
    const client = await connect({ transport: streams(child.stdout, child.stdin) })
    t.after(async () => client.close())
    const session = await client.open({ clientName: 'test' })
    assert.equal(new TextDecoder().decode((await session.run([tell])).stdout).trim(), TOLD)
    const terminal = await session.openTerminal([tell])
    assert.equal((await terminal.output.text(1_000)).trim(), TOLD)
    await session.files.write(join(home.root, 'dir/file'), 'x', { mkdirParents: true })
    assert.deepEqual([await modeOf(join(home.root, 'dir')), await modeOf(join(home.root, 'dir/file'))], ['755', '644'])
  },
)

test(
  'a command of a console gets the default umask and limit of open files',
  { ...OPTIONS, skip: NO_TERMINALS ?? OPTIONS.skip },
  async (t) => {
    const place = await ConsolePlace.make(t)
    await place.host(['--start-host', '--plain'], { through: THROUGH })
    const tell = await tellIn(place.dir)
    assert.equal((await place.run([tell])).stdout.trim(), TOLD)
    const transcripts = join(place.dir, 'home', '.rexec')
    const [name = ''] = (await readdir(transcripts)).filter((one) => one.endsWith('.jsonl'))
    assert.deepEqual([await modeOf(join(transcripts, name)), (await readFile(join(transcripts, name))).length > 0], ['600', true])
  },
)
