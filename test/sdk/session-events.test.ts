import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { MAX_EVENT_TAIL, MAX_KEPT_EVENTS } from '../../src/protocol/limits/events.ts'
import { connected } from './real-server.ts'
import { EXIT, OF_1, output, scripted, startNext } from './scripted-server.ts'

/** A session that keeps events, and the texts of the events so far. */
const kept = async (t: TestContext) => {
  const all = await scripted(t)
  const events = all.session.events()
  return { ...all, events, texts: () => events.take().map(({ text }) => text) }
}

test('O14: session events report started programs, finished ones with the end of their output, and denials', async (t) => {
  const { session } = await connected(t)
  await session.run(['true'])
  const events = session.events()
  assert.deepEqual(events.take(), [], 'only what comes from then on')
  const ended = await session.exec({ shell: 'printf "one\\nExec finished\\n\\033[2Jtwo"; exit 3' })
  ended.discard()
  await ended.exited
  const [began, finished] = events.take()
  assert.equal(began?.text, `Exec started (node=gateway, id=${ended.id})`)
  assert.equal(finished?.text, `Exec finished (node=gateway, id=${ended.id}, code=3)\n  one\n  Exec finished\n   [2Jtwo`)
  assert.deepEqual([finished?.type, finished?.processId, finished?.code, finished?.session], ['exec.finished', ended.id, 3, session.id])
  const killed = await session.exec(['sleep', '600'])
  await killed.kill('KILL')
  await killed.exited
  await assert.rejects(session.run(['no-such-program']))
  await session.run({ shell: `head -c ${2 * MAX_EVENT_TAIL} /dev/zero | tr '\\0' x` })
  const [, cut, denied, , long] = events.take()
  assert.equal(cut?.text, `Exec finished (node=gateway, id=${killed.id}, code=null signal=9)`)
  assert.deepEqual([denied?.text, denied?.processId], ['Exec denied (node=gateway, id=null, file_not_found)', null])
  assert.deepEqual([long?.tail?.length, long?.tailTruncated], [MAX_EVENT_TAIL, true])
  assert.deepEqual(events.take(), [])
})

test('events name the target that the server reports, and a wait for approval appears once', async (t) => {
  const { server, session, texts } = await kept(t)
  const starting = session.exec(['true'], { host: 'node', node: 'bob' })
  const asked = await server.line.next('exec.start')
  for (const question_id of ['q_1', null]) server.line.event('exec.waiting', { ...OF_1, call: asked.id, question_id, expires_in_ms: 5_000 })
  const ran_on = { host: 'node', agent_id: 'ab'.repeat(32), name: 'bob' }
  server.line.answer(asked, { process_id: 'p_1', started_at: '2026-01-01T00:00:00.000Z', ran_on })
  const program = await starting
  server.line.event('exec.exit', { ...OF_1, ...EXIT })
  await program.exited
  assert.deepEqual(texts(), [
    'Exec waiting for approval (node=bob, id=p_1)',
    `Exec started (node=${ran_on.agent_id}, id=p_1)`,
    `Exec finished (node=${ran_on.agent_id}, id=p_1, code=0)`,
  ])
})

test('events also report a lost connection, a failed start and an aborted start', async (t) => {
  const { server, session, texts } = await kept(t)
  const first = session.exec(['true'])
  await startNext(server.line)
  const broken = await first
  server.line.event('exec.error', { ...OF_1, code: -32_010, message: 'no', data: { code: 'file_error', reason: 'spawn_failed' } })
  await assert.rejects(broken.exited)
  const stop = new AbortController()
  const aborted = session.exec(['true'], { signal: stop.signal })
  const late = await server.line.next('exec.start')
  stop.abort(new Error('enough'))
  await assert.rejects(aborted)
  server.line.answer(late, { process_id: 'p_2', started_at: '2026-01-01T00:00:00.000Z' })
  await server.line.next('exec.kill')
  const second = session.exec(['true'])
  await startNext(server.line, 'p_3')
  await second
  const unanswered = session.exec(['true'])
  await server.line.next('exec.start')
  server.line.lose()
  await assert.rejects(unanswered)
  await assert.rejects((await second).exited)
  assert.deepEqual(texts(), [
    'Exec started (node=gateway, id=p_1)',
    'Exec denied (node=gateway, id=p_1, spawn_failed)',
    'Exec denied (node=gateway, id=null, aborted)',
    'Exec started (node=gateway, id=p_3)',
    'Exec finished (node=gateway, id=p_3, code=null incomplete)',
    'Exec finished (node=gateway, id=null, code=null incomplete)',
  ])
})

test('the number and size of kept events are limited, and dropped events are counted', async (t) => {
  const { server, session, events } = await kept(t)
  const data = 'x'.repeat(2 * MAX_EVENT_TAIL)
  const programs = MAX_KEPT_EVENTS
  for (let n = 1; n <= programs; n++) {
    const starting = session.exec(['true'])
    await startNext(server.line)
    const program = await starting
    program.discard()
    if (n > programs - 100) server.line.event('exec.stdout', output(1, data))
    server.line.event('exec.exit', { ...OF_1, ...EXIT, bytes_stdout: n > programs - 100 ? data.length : 0 })
    await program.exited
  }
  const { dropped } = events
  const left = events.take()
  assert.equal(dropped + left.length, 2 * programs)
  assert.ok(left.length < 110 && left.length > 80, `${left.length} events of 20,000 characters`)
  assert.equal(left.at(-1)?.n, 2 * programs)
  assert.equal(events.dropped, 0)
})
