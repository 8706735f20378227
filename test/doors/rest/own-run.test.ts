import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { pieceHashes } from '../../../src/identity/piece-hashes.ts'
import { toHex } from '../../../src/protocol/ids.ts'
import { ownHost } from '../../support/exec-pair.ts'
import { response, startDoor, type TestDoor } from '../../support/rest-server.ts'
import type { HostOptions } from '../../support/executor-host.ts'
import type { TestContext } from 'node:test'
import type { ExecutorHost } from '../../support/executor-host.ts'

const WAITS = 'trap "echo trapped; exit 9" TERM; echo ready; while :; do sleep 0.05; done'

/** A server in front of a real executor that allows its own agent the commands of the options. */
const realDoor = async (t: TestContext, options: HostOptions): Promise<{ door: TestDoor; host: ExecutorHost; own: string }> => {
  const { host, runner, client } = await ownHost(t, options)
  return { host, own: host.own.signer.agentId, door: await startDoor(t, { runner, executor: client }) }
}

test('REST runs a real command, and a denial is an answer', async (t) => {
  const { door, host, own } = await realDoor(t, { scripts: { greet: 'cat; echo err >&2; exit 5' } })
  const greet = host.program('greet')
  const { status, json } = await door.call('POST', '/exec/run', { body: { agent_id: own, argv: [greet], stdin_b64: 'aGVsbG8=' } })
  assert.equal(status, 200)
  assert.deepEqual(
    [json.ok, json.code, json.stdout_b64, json.stderr_b64, json.truncated, json.incomplete],
    [true, 5, 'aGVsbG8=', Buffer.from('err\n').toString('base64'), false, false],
  )
  const denied = await door.call('POST', '/exec/run', { body: { agent_id: own, argv: [greet, ';', 'ls'] } })
  assert.deepEqual([denied.status, denied.json.ok, denied.json.denial_reason], [200, false, 'shell_metachar_in_argv'])
  const diagnostics = (await door.call('GET', '/diagnostics/exec')).json
  assert.deepEqual([diagnostics.enabled, diagnostics.totals.requests_allowed, diagnostics.totals.requests_denied], [true, 1, 1])
  assert.deepEqual([diagnostics.requester.runs_requested, diagnostics.requester.runs_denied], [2, 1])
  assert.deepEqual((await door.call('GET', '/health', { token: null })).json.exec, { status: 'enabled', journal_writable: true })
})

test('stdin and output are streamed byte for byte', async (t) => {
  const { door, host, own } = await realDoor(t, { scripts: { copy: 'cat' }, keys: 'max_stdin_bytes = 8388608' })
  const data = randomBytes(4 * 1024 * 1024)
  const digest = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')
  const request = door.open('POST', '/exec/run', { headers: { 'content-type': 'application/x-ndjson', accept: 'application/x-ndjson' } })
  request.write(
    `${JSON.stringify({ agent_id: own, argv: [host.program('copy')], stdin_len: data.length, stdin_sha256: pieceHashes(data).map(toHex) })}\n`,
  )
  for (let at = 0; at < data.length; at += 100_000) {
    request.write(`${JSON.stringify({ stdin_b64: data.subarray(at, at + 100_000).toString('base64') })}\n`)
  }
  request.end()
  const answer = await response(request)
  const parts: Buffer[] = []
  for await (const part of answer) parts.push(part as Buffer)
  const events = Buffer.concat(parts)
    .toString()
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
  const output = Buffer.concat(
    events.filter(({ type }) => type === 'stdout').map(({ data_b64 }) => Buffer.from(String(data_b64), 'base64')),
  )
  assert.equal(digest(output), digest(data))
  const exit = events.at(-1)
  assert.deepEqual([exit?.['type'], exit?.['ok'], exit?.['code']], ['exit', true, 0])
})

test('the output of an active run is readable, and cancelling it by ID gives the waiting client the outcome', async (t) => {
  const { door, host, own } = await realDoor(t, { scripts: { waits: WAITS } })
  const answer = door.call('POST', '/exec/run', { body: { agent_id: own, argv: [host.program('waits')] } })
  let id: string | undefined
  while (id === undefined) {
    const [session] = (await door.call('GET', '/exec/sessions')).json.sessions as { request_id: string; state: string }[]
    if (session?.state === 'running') id = session.request_id
  }
  const output = async () => door.call('GET', `/exec/output?request_id=${id}`)
  while ((await output()).json.tail !== 'ready\n') await new Promise((resolve) => setTimeout(resolve, 10))
  assert.deepEqual((await door.call('POST', '/exec/cancel', { body: { request_id: id } })).json, { ok: true, request_id: id })
  const { json } = await answer
  assert.deepEqual([json.request_id, json.incomplete, json.warnings.includes('cancelled')], [id, false, true])
  // The output endpoint does not know a run that has ended.
  assert.deepEqual([(await output()).status, (await output()).json.error], [404, 'unknown_run'])
})
