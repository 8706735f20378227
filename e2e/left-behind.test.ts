import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { text } from 'node:stream/consumers'
import { after, before, test } from 'node:test'

import { terminalProblem } from '../src/process/terminal.ts'
import { ConsolePlace } from '../test/support/console-place.ts'
import { startMcp } from '../test/support/mcp-server.ts'
import { MeshOfDaemons, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { isAlive } from '../test/support/processes.ts'
import { rexdCommand } from '../test/support/rexd-command.ts'
import { rexdPlace } from '../test/support/rexd-server.ts'

// A command ends and leaves a process running. Every interface reports that this process was ended, and the number of such processes.

const TEXT = '1 process that the command left running was ended with it'
const LEAVES = 'setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!'
/** The end of a command on a terminal sends SIGHUP to the processes of its group. This one ignores it. */
const LEAVES_ON_TERMINAL = `trap '' HUP; ${LEAVES}`

let mesh: MeshOfDaemons
let [alice, bob, charlie]: TestDaemon[] = []
let leaves: string

before(async () => {
  mesh = await MeshOfDaemons.create()
  leaves = await mesh.program('leaves', LEAVES)
  ;[alice, bob, charlie] = [mesh.add('alice'), mesh.add('bob'), mesh.add('charlie')]
  await alice.start()
  for (const target of [bob, charlie]) {
    await target.writeAcl([{ agent: alice, commands: [[leaves]], keys: 'detach = true' }])
    await target.start()
    await alice.meet(target, 'known')
    await target.meet(alice, 'trusted')
  }
})

after(async () => mesh.stop())

test('x0x exec warns about an ended descendant and keeps the exit status, and the target logs and counts it', async () => {
  const { status, stdout, stderr } = await alice!.exec(bob!, [leaves])
  assert.deepEqual([status, isAlive(Number(stdout))], [0, false])
  assert.equal(stderr, `x0x: warning: descendants_ended: ${TEXT}\n`)
  const lines = (await bob!.journal()).filter(({ event }) => event === 'warning')
  assert.deepEqual(
    lines.map(({ kind, bytes, processes }) => [kind, bytes, processes]),
    [['descendants_ended', null, 1]],
  )
  const { recent_warnings } = await bob!.get<{ recent_warnings: Record<string, unknown>[] }>('/diagnostics/exec')
  assert.deepEqual([recent_warnings[0]?.['kind'], recent_warnings[0]?.['processes']], ['descendants_ended', 1])
})

test('x0x exec --json, a fan-out and attach report an ended descendant', async () => {
  const one = await alice!.cli(['exec', 'bob', '--json', '--', leaves])
  assert.deepEqual((JSON.parse(one.stdout.toString()) as { warnings: string[] }).warnings, ['descendants_ended'])
  const many = await alice!.cli(['exec', 'bob,charlie', '--', leaves])
  assert.ok(many.stderr.includes(`warning: descendants_ended: bob,charlie: ${TEXT}`), many.stderr)
  const id = (await alice!.ok('-q', 'exec', 'bob', '--detach', '--', leaves)).trim()
  const attached = await alice!.cli(['attach', id])
  assert.ok(attached.status === 0 && attached.stderr.includes(`warning: descendants_ended: ${TEXT}`), attached.stderr)
})

test('rexd exec reports an ended descendant', async (t) => {
  const { config } = await rexdPlace(t)
  const [file, ...words] = rexdCommand('deploy/bin/rexd.mjs')
  const child = spawn(file, [...words, 'exec', '--config', config, '--', 'sh', '-c', LEAVES], { stdio: ['ignore', 'pipe', 'pipe'] })
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)])
  assert.deepEqual([isAlive(Number(stdout)), stderr], [false, `rexd: ${TEXT}\n`])
})

test('the result of an MCP tool counts ended descendants', async (t) => {
  const { run } = await startMcp(t)
  const result = await run('exec_capture', { command: 'bash', args: ['-c', LEAVES] })
  assert.deepEqual([result.success, result.descendants_ended, isAlive(Number(result.stdout))], [true, 1, false])
  const plain = await run('exec_capture', { command: 'true' })
  assert.equal('descendants_ended' in plain, false)
})

test(
  'a console reports an ended descendant in its reply, its transcript and its screen',
  { skip: terminalProblem() ?? false },
  async (t) => {
    const place = await ConsolePlace.make(t)
    const host = await place.host()
    const { status, stdout, stderr } = await place.run(['sh', '-c', LEAVES_ON_TERMINAL])
    assert.deepEqual([status, isAlive(Number(stdout)), stderr], [0, false, `rexec: ${TEXT}\n`])
    const [entry] = await place.entries(1)
    assert.equal(entry?.descendants_ended, 1)
    await host.printed(new RegExp(TEXT))
  },
)
