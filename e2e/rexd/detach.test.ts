import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import { post } from '../../test/support/rexd-callers.ts'
import { gone, pidIn, startRexd, type RexdServer } from '../../test/support/rexd-server.ts'

// Programs that outlive the session that started them. They need HTTP or WebSocket and a grant, and have a maximum lifetime.

const TIMEOUT = { timeout: 60_000 }
const GRANTED = { security: 'allow_detach = true' }

const open = async (server: RexdServer, params: object = {}): Promise<string> => {
  const { session_id } = await post(server, 'session.open', { client_name: 'a', ...params })
  return String(session_id)
}

/** A shell that writes its PID to a file, then sleeps or runs the given command. */
const sleeper = (rest = 'exec sleep 600', params: object = {}): object => ({
  shell: true,
  command: `echo $$ > pid.tmp && mv pid.tmp pid; ${rest}`,
  detach: true,
  ...params,
})

test('the lifetime and the number of detached programs are limited', TIMEOUT, async (t) => {
  const server = await startRexd(t, { ...GRANTED, limits: 'max_detached_processes = 1\nmax_detached_ms = 3000\nhard_timeout_ms = 1000' })
  const session_id = await open(server)
  const { process_id } = await post(server, 'exec.start', { session_id, ...sleeper() })
  await assert.rejects(post(server, 'exec.start', { session_id, ...sleeper() }), {
    code: -32_008,
    data: { code: 'resource_limit', limit: 'max_detached_processes', max: 1 },
  })
  await post(server, 'session.close', { session_id })
  const other = await open(server)
  const { status } = await post(server, 'exec.wait', { session_id: other, process_id })
  assert.equal(status, 'timed_out')
  const asked = { session_id: other, ...sleeper('true', { timeout_ms: 3_001 }) }
  const { timeout_ms } = await post(server, 'exec.start', asked)
  assert.equal(timeout_ms, 3_000, 'it is cut to the limit, and told')
})

test('detached programs end with the server, after SIGTERM and after SIGKILL', TIMEOUT, async (t) => {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    const server = await startRexd(t, GRANTED)
    const session_id = await open(server)
    await post(server, 'exec.start', { session_id, ...sleeper() })
    const pid = await pidIn(join(server.root, 'pid'))
    await post(server, 'session.close', { session_id })
    server.child.kill(signal)
    await gone(pid)
  }
})

test('without the grant a client can neither detach programs nor see those of others', TIMEOUT, async (t) => {
  const server = await startRexd(t, GRANTED)
  const narrow = await open(server, { requested_capabilities: ['exec', 'exec.shell'] })
  await assert.rejects(post(server, 'exec.start', { session_id: narrow, ...sleeper() }), { code: -32_007 })
  const session_id = await open(server)
  const { process_id } = await post(server, 'exec.start', { session_id, ...sleeper() })
  await post(server, 'session.close', { session_id })
  await assert.rejects(post(server, 'exec.kill', { session_id: narrow, process_id }), { code: -32_005 })
  assert.equal((await post(server, 'session.info', { session_id: narrow })).detached, undefined)
  const ungranted = await startRexd(t)
  const asked = { session_id: await open(ungranted), ...sleeper() }
  await assert.rejects(post(ungranted, 'exec.start', asked), {
    code: -32_007,
    data: { code: 'unsupported_capability', capability: 'exec.detach' },
  })
})
