import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { soon } from '../../test/support/local-engine.ts'
import { mcpPlace, startMcp } from '../../test/support/mcp-server.ts'
import { isAlive } from '../../test/support/processes.ts'
import { callOf, RawServer } from '../../test/support/raw-mcp.ts'
import { DEFAULT_WHOAMI, keeperPids, listed, runMcp, startStaying, stayingPlace, type StayingPlace } from '../../test/support/staying.ts'

const read = async ({ root }: StayingPlace, file: string): Promise<string> => readFile(join(root, file), 'utf8').catch(() => '')

const pidIn = async (place: StayingPlace, file = 'pid'): Promise<number> => {
  assert.ok(await soon(async () => (await read(place, file)).endsWith('\n')))
  return Number(await read(place, file))
}

const STAYS = { stay: true, timeout_seconds: 600, answer_within_ms: 0 }
const sh = (text: string) => ({ command: 'sh', args: ['-c', text] })

test('the next server finds what stays, reads its output from an offset, waits for it, and ends another', async (t) => {
  const place = await stayingPlace(t)
  const first = await startStaying(t, place)
  const begun = await first.run('exec_capture', { ...sh('echo one; while [ ! -e go ]; do sleep 0.05; done; echo two'), ...STAYS })
  const other = await first.run('exec_status', { ...sh('echo $$ > pid; exec sleep 300'), ...STAYS })
  const local = await first.run('exec_status', { command: 'sleep', args: ['300'], answer_within_ms: 0, timeout_seconds: 60 })
  const pid = await pidIn(place)
  const waited = await first.run('exec_wait', { run_id: begun.run_id, answer_within_ms: 300 })
  assert.deepEqual([waited.state, waited.cwd, waited.timeout_ms, waited.stdout], ['running', place.root, 600_000, 'one\n'])
  const rows = (all: readonly Record<string, unknown>[]) => all.map(({ run_id, stays, state }) => [run_id, stays, state])
  assert.deepEqual(rows(await listed(first)), [
    [local.run_id, false, 'running'],
    [other.run_id, true, 'running'],
    [begun.run_id, true, 'running'],
  ])
  await first.close()
  assert.ok(await soon(() => !isAlive(first.pid)))

  const second = await startStaying(t, place)
  assert.deepEqual(rows(await listed(second)), [
    [other.run_id, true, 'running'],
    [begun.run_id, true, 'running'],
  ])
  assert.equal((await second.run('exec_wait', { run_id: begun.run_id, answer_within_ms: 0 })).state, 'running')
  await writeFile(join(place.root, 'go'), '')
  const ended = await second.run('exec_wait', { run_id: begun.run_id })
  assert.deepEqual([ended.state, ended.success, ended.stdout, ended.run_id], ['ended', true, 'one\ntwo\n', null])
  const events = async (): Promise<string> => JSON.stringify((await second.client.readResource({ uri: 'x0x://events' })).contents)
  assert.ok(
    await soon(async () => /Exec finished \(node=gateway, id=[^,]+, code=0\)\\n {2}one\\n {2}two\\n/.test(await events())),
    await events(),
  )
  const part = (await second.ask('exec_output', { run_id: begun.run_id, from: 4 })).structuredContent as Record<string, unknown>
  assert.deepEqual([part['text'], part['next'], part['more']], ['two\n', 8, false])
  const killed = await second.run('exec_kill', { run_id: other.run_id })
  assert.deepEqual([killed.state, killed.signal], ['ended', 'SIGTERM'])
  assert.ok(!isAlive(pid))
  // What is nobody's is told as it is without a keeper.
  const plain = await startMcp(t)
  const nobody = async (server: typeof plain) => (await server.ask('exec_wait', { run_id: 'run_x' })).content
  assert.deepEqual(await nobody(second), await nobody(plain))
})

test('what stays goes on however its session ends: by the end of standard input, SIGTERM, or kill -9 of all of its process group', async (t) => {
  const place = await stayingPlace(t)
  const ways = ['end of input', 'SIGTERM', 'SIGKILL'] as const
  const pids: number[] = []
  for (const [at, how] of ways.entries()) {
    const server = await RawServer.start(t, place, { whoami: DEFAULT_WHOAMI, env: place.env, detached: true })
    // One call has its answer, and one waits for its command when the session ends.
    server.send(callOf(1, 'exec_status', { ...sh(`echo $$ > one${at}; exec sleep 300`), ...STAYS }))
    server.send(callOf(2, 'exec_status', { ...sh(`echo $$ > two${at}; exec sleep 300`), stay: true, timeout_seconds: 600 }))
    server.send(callOf(3, 'exec_status', { ...sh(`echo $$ > own${at}; exec sleep 300`), timeout_seconds: 600 }))
    await server.answer(1)
    pids.push(await pidIn(place, `one${at}`), await pidIn(place, `two${at}`))
    const own = await pidIn(place, `own${at}`)
    if (how === 'end of input') server.child.stdin?.end()
    else process.kill(-server.child.pid!, how)
    assert.ok(await soon(() => !isAlive(server.child.pid!) && !isAlive(own)), how)
    if (how === 'end of input') assert.match(JSON.stringify(await server.answer(2)), /shutting_down: .*what stays goes on/)
  }
  assert.equal((await keeperPids(place)).length, 1)
  const next = await startStaying(t, place)
  const rows = await listed(next)
  assert.deepEqual(
    rows.map(({ state, stays }) => [state, stays]),
    pids.map(() => ['running', true]),
  )
  assert.ok(pids.every(isAlive))
  assert.deepEqual(await runMcp(place, ['--end-kept']), { status: 0, stdout: 'what stayed is ended\n', stderr: '' })
  assert.ok(!pids.some(isAlive))
  assert.deepEqual(await listed(next), [])
})

test('a key of what stays runs its command once, for the next server and for one that asks without stay', async (t) => {
  const place = await stayingPlace(t)
  const asked = {
    ...sh('echo x >> count; while [ ! -e go ]; do sleep 0.05; done; exit 3'),
    timeout_seconds: 60,
    idempotency_key: randomUUID(),
  }
  const first = await startStaying(t, place)
  await first.run('exec_status', { ...asked, stay: true, answer_within_ms: 0 })
  assert.ok(await soon(async () => (await read(place, 'count')) === 'x\n'))
  await first.close()
  const second = await startStaying(t, place)
  const again = await second.run('exec_status', { ...asked, stay: true, answer_within_ms: 0 })
  assert.equal(again.state, 'running')
  const without = await second.run('exec_status', asked)
  assert.deepEqual([without.state, without.run_id], ['running', null])
  const other = await second.run('exec_status', { ...asked, command: 'true', args: [], stay: true })
  assert.deepEqual([other.success, other.denial_reason], [false, 'conflict'])
  await writeFile(join(place.root, 'go'), '')
  const ended = await second.run('exec_status', { ...asked, stay: true })
  assert.deepEqual([ended.state, ended.exit_code], ['ended', 3])
  assert.deepEqual(await second.run('exec_status', asked), ended)
  assert.deepEqual((await runMcp(place, ['--end-kept'])).status, 0)
  assert.deepEqual(await second.run('exec_status', { ...asked, stay: true }), ended, 'the next keeper has it of the journal')
  assert.equal(await read(place, 'count'), 'x\n')
})

test('a call of what stays that is cancelled ends its command, and who waits for it is told of progress', async (t) => {
  const place = await stayingPlace(t)
  const server = await startStaying(t, place)
  const cancelling = new AbortController()
  const { promise: told, resolve } = Promise.withResolvers<string>()
  const asked = { ...sh('echo $$ > pid; exec sleep 300'), stay: true, timeout_seconds: 600 }
  const call = server.ask('exec_status', asked, { signal: cancelling.signal, onprogress: ({ message = '' }) => resolve(message) })
  assert.match(await told, /^(waits for a place; 0 commands are before it|runs; 0 bytes of output)$/)
  const pid = await pidIn(place)
  cancelling.abort('enough')
  await assert.rejects(call, /enough/)
  assert.ok(await soon(() => !isAlive(pid)))
  // The time of an answer is this server's, however long the keeper would wait.
  const patient = await startStaying(t, place, { flags: ['--answer-within-ms', '300'] })
  const begun = await patient.run('exec_capture', { ...sh('sleep 300'), stay: true, timeout_seconds: 600, answer_within_ms: 3_600_000 })
  assert.equal(begun.state, 'running')
  assert.equal((await patient.run('exec_wait', { run_id: begun.run_id })).state, 'running')
})

test('nothing stays unless the configuration grants it: there is no such argument, and who gives it is told what to set', async (t) => {
  const place = await mcpPlace(t)
  const plain = await startMcp(t, {}, { place })
  const schemaOf = async (server: typeof plain): Promise<unknown> =>
    (await server.client.listTools()).tools.find(({ name }) => name === 'exec_status')?.inputSchema.properties
  assert.ok(!JSON.stringify(await schemaOf(plain)).includes('"stay"'))
  const refused = await plain.ask('exec_status', { command: 'true', stay: true })
  assert.deepEqual(
    [refused.isError, refused.content],
    [
      true,
      [
        {
          type: 'text',
          text: 'unsupported_capability: stay: no command may outlive its session here; security.allow_detach = true grants it',
        },
      ],
    ],
  )
  const granting = await stayingPlace(t)
  const server = await startStaying(t, granting)
  assert.match(JSON.stringify(await schemaOf(server)), /"stay":\{"description":"true: the command goes on when this session ends/)
  assert.match(server.client.getInstructions() ?? '', /"stay": true/)
  const wrong = await server.ask('exec_status', { command: 'true', stay: 'yes' })
  assert.match(JSON.stringify(wrong.content), /bad_request: stay: /)
  assert.equal((await server.run('exec_status', { command: 'true', stay: false })).success, true)
  assert.deepEqual(await keeperPids(granting), [], 'nobody asked for a keeper')
  const kept = await runMcp({ config: place.config, env: granting.env }, ['--keep'])
  assert.deepEqual([kept.status, /security\.allow_detach is false/.test(kept.stderr)], [2, true])
  const check = async ({ config }: Pick<StayingPlace, 'config'>) => (await runMcp({ config, env: granting.env }, ['--check'])).stdout
  assert.match(await check(place), /no command outlives its session \(security\.allow_detach\)/)
  assert.match(await check(granting), /commands may stay when their session ends: 8 at once, for 86400000 ms/)
})

test('what stays has its own bounds: of number, and of time; and not on a target', async (t) => {
  const place = await stayingPlace(t, {
    limits: 'max_detached_processes = 1\nmax_detached_ms = 4000\nmax_processes_per_session = 4',
    security: 'allow_targets = ["bob"]',
  })
  const server = await startStaying(t, place)
  const begin = async (file: string) => server.run('exec_status', { ...sh(`echo > ${file}; exec sleep 300`), ...STAYS })
  const one = await begin('one')
  assert.ok(await soon(async () => (await read(place, 'one')) === '\n'))
  const two = await begin('two')
  assert.deepEqual(
    (await listed(server)).map(({ run_id, state, waiting_before }) => [run_id, state, waiting_before]),
    [
      [two.run_id, 'queued', 0],
      [one.run_id, 'running', null],
    ],
  )
  const late = await server.run('exec_wait', { run_id: one.run_id })
  assert.deepEqual([late.timed_out, late.timeout_ms, late.timeout_clamped], [true, 4_000, true])
  const target = await server.run('exec_status', { command: 'true', target: 'bob', stay: true })
  assert.equal(target.denial_reason, 'unsupported_capability')
  assert.match(String(target.denial_detail), /a session of a target has no exec\.detach/)
})
