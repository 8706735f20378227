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

// A command ends and leaves a process running. Every interface says that it was ended, and how many there were.

const TEXT = '1 process that the command left running was ended with it'
const LEAVES = 'setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!'
/** On a terminal, the end of the command hangs up what it left in its process group, unless that ignores it. */
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

test('x0x exec warns, keeps the status of the command, and the target has it in its audit log and diagnostics', async () => {
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

test('x0x exec --json, a fan-out and attach have it too', async () => {
  const one = await alice!.cli(['exec', 'bob', '--json', '--', leaves])
  assert.deepEqual((JSON.parse(one.stdout.toString()) as { warnings: string[] }).warnings, ['descendants_ended'])
  const many = await alice!.cli(['exec', 'bob,charlie', '--', leaves])
  assert.ok(many.stderr.includes(`warning: descendants_ended: bob,charlie: ${TEXT}`), many.stderr)
  const id = (await alice!.ok('-q', 'exec', 'bob', '--detach', '--', leaves)).trim()
  const attached = await alice!.cli(['attach', id])
  assert.ok(attached.status === 0 && attached.stderr.includes(`warning: descendants_ended: ${TEXT}`), attached.stderr)
})

test('REXD has it in exec.exit, and rexd exec says it', async (t) => {
  const { config } = await rexdPlace(t)
  const [file, ...words] = rexdCommand('deploy/bin/rexd.mjs')
  const child = spawn(file, [...words, 'exec', '--config', config, '--', 'sh', '-c', LEAVES], { stdio: ['ignore', 'pipe', 'pipe'] })
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)])
  assert.deepEqual([isAlive(Number(stdout)), stderr], [false, `rexd: ${TEXT}\n`])
})

test('MCP has it in the result', async (t) => {
  const { run } = await startMcp(t)
  const result = await run('exec_capture', { command: 'bash', args: ['-c', LEAVES] })
  assert.deepEqual([result.success, result.descendants_ended, isAlive(Number(result.stdout))], [true, 1, false])
  const plain = await run('exec_capture', { command: 'true' })
  assert.equal('descendants_ended' in plain, false)
})

test('a console has it in its reply, in its transcript and on its screen', { skip: terminalProblem() ?? false }, async (t) => {
  const place = await ConsolePlace.make(t)
  const host = await place.host()
  const { status, stdout, stderr } = await place.run(['sh', '-c', LEAVES_ON_TERMINAL])
  assert.deepEqual([status, isAlive(Number(stdout)), stderr], [0, false, `rexec: ${TEXT}\n`])
  const [entry] = await place.entries(1)
  assert.equal(entry?.descendants_ended, 1)
  await host.printed(new RegExp(TEXT))
})
