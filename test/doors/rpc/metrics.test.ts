import assert from 'node:assert/strict'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { ask, post } from '../../support/rexd-callers.ts'
import { startRpcHost, type RpcHost } from '../../support/rpc-host.ts'

const TIMEOUT = { timeout: 30_000 }
const LINE = /^(?<name>[a-z_]+)(?:\{(?<labels>[a-z]+="[a-z0-9_.-]+"(?:,[a-z]+="[a-z0-9_.-]+")*)\})? (?<value>\d+)$/

/** Samples by name and labels. Checks that each line matches the text format. */
const samplesOf = async (host: RpcHost): Promise<ReadonlyMap<string, number>> => {
  const { status, headers, text } = await ask(host, { method: 'GET', path: '/metrics' })
  assert.deepEqual([status, headers['content-type']], [200, 'text/plain; version=0.0.4; charset=utf-8'])
  assert.ok(text.endsWith('\n'))
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('# '))
  return new Map(
    lines.map((line) => {
      const { name, labels, value } = LINE.exec(line)?.groups ?? assert.fail(line)
      return [labels === undefined ? name! : `${name}{${labels}}`, Number(value)]
    }),
  )
}

test('metrics count requests, runs and results, and contain no text of clients', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { session_id } = await post(host, 'session.open', { client_name: 'secret_name' })
  const asleep = await post(host, 'exec.start', { session_id, argv: ['sleep', '600'] })
  const { process_id } = await post(host, 'exec.start', { session_id, argv: ['echo', 'secret_word'] })
  await post(host, 'exec.wait', { session_id, process_id })
  await assert.rejects(post(host, 'secret_method', {}))
  await assert.rejects(post(host, 'fs.read', { session_id, path: '/secret_path' }))
  const during = await samplesOf(host)
  assert.deepEqual(
    [
      'rexd_requests_total{method="session.open",code="ok"}',
      'rexd_requests_total{method="exec.start",code="ok"}',
      'rexd_requests_total{method="fs.read",code="-32002"}',
      'rexd_requests_total{method="unknown",code="-32601"}',
      'rexd_sessions',
      'rexd_processes_running',
      'rexd_processes_ended_total{status="exited"}',
      'rexd_output_bytes_total',
    ].map((name) => during.get(name)),
    [1, 2, 1, 1, 1, 1, 1, 'secret_word\n'.length],
  )
  assert.doesNotMatch([...during.keys()].join('\n'), /secret/)
  await post(host, 'exec.kill', { session_id, process_id: asleep.process_id })
  await post(host, 'exec.wait', { session_id, process_id: asleep.process_id })
  await post(host, 'session.close', { session_id })
  const after = await samplesOf(host)
  const names = ['rexd_sessions', 'rexd_processes_running', 'rexd_processes_ended_total{status="killed"}']
  assert.deepEqual(
    names.map((name) => after.get(name)),
    [0, 0, 1],
  )
})

test('a run that the audit log cannot record does not start and is not counted', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  const { session_id } = await post(host, 'session.open', { client_name: 'a' })
  await rm(join(host.dir, 'log'), { recursive: true })
  for (let round = 0; round < 3; round++)
    await assert.rejects(post(host, 'exec.start', { session_id, argv: ['true'] }), { data: { code: 'journal_unavailable' } })
  const samples = await samplesOf(host)
  assert.equal(samples.get('rexd_processes_running'), 0)
  assert.deepEqual((await post(host, 'session.info', { session_id })).processes, [])
  // Clients get no event about its end.
  assert.deepEqual((await post(host, 'session.events', { session_id, cursor: 0 })).events, [])
})

test('metrics require the token and GET', TIMEOUT, async (t) => {
  const host = await startRpcHost(t)
  assert.equal((await ask(host, { method: 'GET', path: '/metrics', token: null })).status, 401)
  assert.equal((await ask(host, { method: 'GET', path: '/metrics', headers: { host: 'evil.example' } })).status, 403)
  const posted = await ask(host, { method: 'POST', path: '/metrics', body: {} })
  assert.deepEqual([posted.status, posted.headers['allow']], [405, 'GET'])
})
