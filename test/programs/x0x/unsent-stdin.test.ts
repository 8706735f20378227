import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { test, type TestContext } from 'node:test'

import { exitEvent, RUN_ID, runOutcome } from '../../support/journal-exit.ts'
import { fakeDaemon, json, runAnswer } from '../../support/fake-daemon.ts'
import { fleetDaemon, hostEnd } from '../../support/fleet-daemon.ts'

const NOTE = 'x0x: standard input was not sent; --stdin-file - sends it\n'
const X0X = join(import.meta.dirname, '..', '..', '..', 'dist', 'x0x.cjs')

/** Runs a line of the shell in which `x0x` is the built program. */
const shell = async (dir: string, script: string, input?: string) => {
  const child = spawn('bash', ['-c', `x0x() { '${process.execPath}' '${X0X}' --data-dir '${dir}' "$@"; }\n${script}`], { cwd: dir })
  if (input !== undefined) child.stdin.end(input)
  const [stdout, stderr, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  child.stdin.destroy()
  return { status: status as number, stdout, stderr }
}

const place = async (t: TestContext): Promise<string> => {
  const { dir } = await fakeDaemon(t, (_request, response) => runAnswer(response, exitEvent()))
  await Promise.all([writeFile(join(dir, 'three'), 'a\nb\nc\n'), writeFile(join(dir, 'none'), '')])
  return dir
}

test('data on standard input that is not sent is said, and only then', async (t) => {
  const dir = await place(t)
  for (const [script, note] of [
    ['echo hello | x0x exec bob -- cat', NOTE],
    ['x0x exec bob -- cat < three', NOTE],
    ['x0x exec bob -- cat <<< hello', NOTE],
    ['x0x --json exec bob -- cat < three', NOTE],
    // What starts late has begun by the end.
    ['{ read -r; echo late; sleep 5; } < <(echo) | x0x exec bob -- cat', NOTE],
    [': | x0x exec bob -- cat', ''],
    ['exec 9< <(sleep 5); x0x exec bob -- cat <&9', ''],
    ['x0x exec bob -- cat < none', ''],
    ['x0x exec bob -- cat < /dev/null', ''],
    ['x0x exec bob -- cat <&-', ''],
    ['echo hello | x0x -q exec bob -- cat', ''],
    ['echo hello | x0x exec bob --stdin-file - -- cat', ''],
    ['x0x exec bob --stdin-file three -- cat < three', ''],
  ] as const) {
    const { status, stderr } = await shell(dir, script)
    assert.deepEqual([status, stderr], [0, note], script)
  }
})

test('what others may read on is left unread', async (t) => {
  const dir = await place(t)
  const loop = 'while read -r line; do x0x -q exec bob -- cat; echo "$line"; done'
  for (const script of [`${loop} < three`, `cat three | ${loop}`]) assert.equal((await shell(dir, script)).stdout, 'a\nb\nc\n', script)
  assert.equal((await shell(dir, loop, 'a\nb\nc\n')).stdout, 'a\nb\nc\n')
  const noisy = loop.replace(' -q', '')
  assert.deepEqual(await shell(dir, `${noisy} < three`), { status: 0, stdout: 'a\nb\nc\n', stderr: '' })
  for (const [script, input] of [[`cat three | { x0x exec bob -- cat; cat; }`], ['x0x exec bob -- cat; cat', 'a\nb\nc\n']] as const)
    assert.equal((await shell(dir, script, input)).stdout, 'a\nb\nc\n', script)
})

test('a program that starts it with a socket as standard input hears of it, too', async (t) => {
  const dir = await place(t)
  for (const [input, note] of [
    ['hello', NOTE],
    ['', ''],
    [null, ''],
  ] as const) {
    const child = spawn(process.execPath, [X0X, '--data-dir', dir, 'exec', 'bob', '--', 'cat'])
    if (input !== null) child.stdin.end(input)
    const [stderr] = await Promise.all([text(child.stderr), once(child, 'exit')])
    child.stdin.destroy()
    assert.equal(stderr, note, JSON.stringify(input))
  }
})

test('a fan-out, a detached run and an attach say it as well', async (t) => {
  const fleet = await fleetDaemon(t, ['web1', 'web2'], (fanout) => {
    fanout.begun(...fanout.hosts)
    fanout.ended(...fanout.hosts.map((host) => hostEnd(host)))
    fanout.close()
  })
  assert.ok((await shell(fleet.dir, "echo hello | x0x exec 'web[1-2]' -- cat")).stderr.endsWith(NOTE))
  assert.ok(!(await shell(fleet.dir, "echo hello | x0x exec 'web[1-2]' --stdin-file - -- cat")).stderr.endsWith(NOTE))
  const run = { request_id: RUN_ID, agent_id: 'a'.repeat(64), agent: 'bob', argv: ['cat'], state: 'ended', kept: null }
  const { dir } = await fakeDaemon(t, ({ path }, response) => {
    if (!path.includes('/output')) return json(response, 200, { ok: true, ...run })
    response.end(`${JSON.stringify({ type: 'exit', ...runOutcome(), from: 0, next: 0 })}\n`)
  })
  for (const line of ['exec bob --detach -- cat', `attach ${RUN_ID}`])
    assert.match((await shell(dir, `echo hello | x0x ${line}`)).stderr, /^x0x: standard input was not sent; a detached run has none$/m)
})
