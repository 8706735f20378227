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

// e2e/stdin.test.ts has the table of cases, in several shells. These cases need a special daemon.

const X0X = join(import.meta.dirname, '..', '..', '..', 'dist', 'x0x.cjs')

/** Runs a shell line in which `x0x` is the built program. A shell function would open redirected files in the shell itself. */
const shell = async (dir: string, script: string) => {
  await writeFile(join(dir, 'x0x'), `#!/bin/sh\nexec '${process.execPath}' '${X0X}' --data-dir '${dir}' "$@"\n`, { mode: 0o755 })
  const env = { ...process.env, PATH: `${dir}:${process.env['PATH']}` }
  const child = spawn('bash', ['-c', script], { cwd: dir, env, stdio: ['ignore', 'pipe', 'pipe'] })
  const [stdout, stderr, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  return { status: status as number, stdout, stderr }
}

const place = async (t: TestContext) => {
  const daemon = await fakeDaemon(t, (_request, response) => runAnswer(response, exitEvent()))
  await writeFile(join(daemon.dir, 'three'), 'a\nb\nc\n')
  return daemon
}

test('a refused command requests no run, and x0x prints both ways to repeat it', async (t) => {
  const { dir, seen } = await place(t)
  const { status, stderr } = await shell(dir, "x0x exec bob --timeout 5 -- cat 'a b' < three")
  const line = `x0x --data-dir ${dir} exec bob --timeout 5`
  assert.deepEqual(stderr.split('\n'), [
    'x0x: standard input has data that would not be sent (stdin_not_sent), so nothing was run',
    `     Try: ${line} --stdin-file - -- cat 'a b'   (to send it)`,
    `     Try: ${line} -- cat 'a b' < /dev/null   (to run without it)`,
    '',
  ])
  assert.deepEqual([status, seen], [2, []])
})

test('with --json, the refusal is an object on standard output', async (t) => {
  const { dir, seen } = await place(t)
  const { status, stdout } = await shell(dir, 'x0x --json exec bob -- cat < three')
  const { ok, error, message } = JSON.parse(stdout) as Record<string, unknown>
  assert.deepEqual([status, ok, error, seen], [2, false, 'bad_request', []])
  assert.match(String(message), /stdin_not_sent/)
})

test('other commands do not read standard input and print no warning', async (t) => {
  const { dir } = await fakeDaemon(t, (_request, response) => json(response, 200, { ok: true, sessions: [], fanouts: [], agent_id: 'a' }))
  await writeFile(join(dir, 'three'), 'a\nb\nc\n')
  for (const line of ['id', 'version', 'exec sessions', 'man x0x'])
    assert.deepEqual((await shell(dir, `x0x ${line} < three`)).stderr, '', line)
})

test('a fan-out, a detached run and an attach with data on stdin are refused', async (t) => {
  const fleet = await fleetDaemon(t, ['web1', 'web2'], (fanout) => {
    fanout.begun(...fanout.hosts)
    fanout.ended(...fanout.hosts.map((host) => hostEnd(host)))
    fanout.close()
  })
  const refused = await shell(fleet.dir, "x0x exec 'web[1-2]' -- cat <<< hello")
  assert.deepEqual([refused.status, /stdin_not_sent/.test(refused.stderr)], [2, true])
  assert.equal((await shell(fleet.dir, "x0x exec 'web[1-2]' --stdin-file - -- cat <<< hello")).status, 0)
  const run = { request_id: RUN_ID, agent_id: 'a'.repeat(64), agent: 'bob', argv: ['cat'], state: 'ended', kept: null }
  const { dir } = await fakeDaemon(t, ({ path }, response) => {
    if (!path.includes('/output')) return json(response, 200, { ok: true, ...run })
    response.end(`${JSON.stringify({ type: 'exit', ...runOutcome(), from: 0, next: 0 })}\n`)
  })
  for (const line of ['exec bob --detach -- cat', `attach ${RUN_ID}`]) {
    const { status, stderr } = await shell(dir, `x0x ${line} <<< hello`)
    assert.equal(status, 2, line)
    assert.match(
      stderr,
      /\(stdin_not_sent\).*\n {5}A detached run has no stdin\n {5}Try: x0x .*cp - HOST:PATH .*\n {5}Try: x0x .* < \/dev\/null/,
    )
    assert.equal((await shell(dir, `x0x ${line}`)).status, 0)
  }
})
