import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { connect } from '../../src/sdk/client.ts'
import type { StartWaiting } from '../../src/sdk/commands.ts'
import { OF_1, OPENED, scripted, ScriptedServer, startNext, type Asked } from './scripted-server.ts'

/** A session with a server that reports starts that wait for approval. */
const telling = async (t: TestContext) => {
  const server = new ScriptedServer()
  const heard: string[] = []
  const client = await connect({ transport: server.factory, onEvent: ({ method }) => void heard.push(method) })
  t.after(async () => client.close())
  const opening = client.open({ clientName: 'test' })
  server.line.answer(await server.line.next('session.open'), { ...OPENED, tells_waiting: true })
  const waits = ({ id }: Asked, question_id: string | null = 'q_1'): void =>
    server.line.event('exec.waiting', { ...OF_1, call: id, question_id, expires_in_ms: 5_000 })
  return { server, client, session: await opening, waits, heard }
}

test('an older server is not asked to report waiting starts', async (t) => {
  const { server, session } = await scripted(t)
  const starting = session.exec(['true'], { onWaiting: () => assert.fail('it was told') })
  assert.equal('tell_waiting' in (await startNext(server.line)).params, false)
  assert.equal((await starting).id, 'p_1')
  const opening = session.openTerminal(['true'])
  const asked = await server.line.next('pty.open')
  assert.equal('tell_waiting' in asked.params, false)
  server.line.answer(asked, { process_id: 'p_2', pty_id: 't_2', started_at: '2026-01-01T00:00:00.000Z' })
  await opening
})

test('a server that supports it is asked to report waiting starts, and onWaiting runs in a separate turn', async (t) => {
  const { server, session, waits } = await telling(t)
  const told: StartWaiting[] = []
  const starting = session.exec(['true'], { onWaiting: (waiting) => void told.push(waiting) })
  const asked = await server.line.next('exec.start')
  assert.equal(asked.params['tell_waiting'], true)
  waits(asked)
  waits(asked, null)
  assert.deepEqual(told, [], 'it is called in a turn of its own')
  await Promise.resolve()
  assert.deepEqual(told, [
    { questionId: 'q_1', expiresInMs: 5_000 },
    { questionId: null, expiresInMs: 5_000 },
  ])
  server.line.answer(asked, { process_id: 'p_1', started_at: '2026-01-01T00:00:00.000Z' })
  assert.equal((await starting).id, 'p_1')
})

test('aborting a waiting start withdraws it once, before or after the server reports the wait', async (t) => {
  const { server, session, waits } = await telling(t)
  for (const early of [true, false]) {
    const stop = new AbortController()
    const starting = session.exec(['true'], { signal: stop.signal, onWaiting: () => undefined })
    const asked = await server.line.next('exec.start')
    if (early) waits(asked)
    stop.abort(new Error('enough'))
    await assert.rejects(starting, /enough/)
    if (!early) waits(asked)
    const kill = await server.line.next('exec.kill')
    assert.deepEqual(kill.params, OF_1)
    server.line.answer(kill, { ok: true })
    server.line.refuse(asked, { code: -32_006, message: 'taken back' })
    assert.deepEqual(server.line.unread, [])
  }
})

test('onEvent receives the waiting event of a direct exec.start call', async (t) => {
  const { server, client, waits, heard } = await telling(t)
  const starting = client.call('exec.start', { session_id: 's_1', argv: ['true'], tell_waiting: true })
  const asked = await server.line.next('exec.start')
  waits(asked)
  server.line.answer(asked, { process_id: 'p_1', started_at: '2026-01-01T00:00:00.000Z' })
  await starting
  assert.deepEqual(heard, ['exec.waiting'])
})
