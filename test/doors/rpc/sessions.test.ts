import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { RpcSession } from '../../../src/doors/rpc/sessions.ts'
import { RpcSessions } from '../../../src/doors/rpc/sessions.ts'
import { DEFAULT_LOCAL_LIMITS } from '../../../src/policy/local/policy.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const SEED = 20_261_121
const WINDOW = 60_000

const sessionOf = (id: string, kept = true): RpcSession =>
  new RpcSession({
    id,
    grant: { capabilities: [], limits: DEFAULT_LOCAL_LIMITS, workspace_roots: [] },
    clientName: 'a test',
    openedAt: '2026-01-01T00:00:00.000Z',
    kept,
  })

/** Sessions whose executor records the sessions that it closes. */
const sessionsAt = (clock: ManualClock): { sessions: RpcSessions; closed: string[] } => {
  const closed: string[] = []
  const close = async (session: string): Promise<number> => {
    closed.push(session)
    return 0
  }
  return { sessions: new RpcSessions({ executor: { close }, clock }), closed }
}

const nothing = (): void => undefined
const unknown = { code: 'unknown_session' }
const [me, somebody] = [{ name: 'me' }, { name: 'somebody' }]

test("only the session's token gives access, and an error does not reveal whether the session exists", () => {
  const { sessions } = sessionsAt(new ManualClock())
  const [one, other, unkept] = [sessionOf('s_1'), sessionOf('s_2'), sessionOf('s_4', false)]
  const [token, otherToken] = [sessions.add(one, me) ?? '', sessions.add(other, me) ?? '']
  assert.equal(sessions.add(unkept, me), null)
  assert.match(token, /^[A-Za-z0-9_-]{43}$/)
  assert.notEqual(token, otherToken)
  const wrong = ['', otherToken, token.slice(1), `${token}x`, ` ${token}`, token.toUpperCase(), 'x'.repeat(43), '\u{d800}']
  const tellings = [
    ...wrong.map((text) => ['s_1', text] as const),
    ['s_3', token] as const,
    ['s_4', token] as const,
    ['s_4', ''] as const,
    ['', token] as const,
    ['__proto__', token] as const,
  ].map(([id, text]) => {
    try {
      sessions.take(id, text, somebody, nothing)
    } catch (error) {
      return String(error)
    }
    return assert.fail(`${id} was given to ${text}`)
  })
  assert.equal(new Set(tellings).size, 1)
  assert.equal(sessions.find('s_1', me), one, 'who has it keeps it')
  assert.equal(sessions.take('s_1', token, somebody, nothing), one)
})

test('a session belongs to the newest client, and every earlier client loses it', () => {
  const { sessions } = sessionsAt(new ManualClock())
  const session = sessionOf('s_1')
  const callers = [me, somebody, { name: 'third' }, { name: 'fourth' }]
  const token = sessions.add(session, me) ?? ''
  for (const caller of callers) {
    const said: object[] = []
    assert.equal(sessions.take('s_1', token, caller, nothing), session)
    assert.deepEqual(
      callers.filter((one) => sessions.find('s_1', one) !== null),
      [caller],
    )
    session.events.attach((message) => void said.push(message as object), session.events.last)
    void session.events.emit('to the last', {})
    assert.equal(said.length, 1)
    assert.equal(sessions.take('s_1', token, caller, nothing), session)
    void session.events.emit('to nobody', {})
    assert.equal(said.length, 1, 'nothing is said to who had it')
  }
  const busy = new Error('busy')
  assert.throws(() => sessions.take('s_1', token, me, () => assert.fail(busy)), busy)
  assert.equal(sessions.find('s_1', callers.at(-1)!), session, 'who has it keeps it')
})

test('pending calls keep a session open, and its timeout restarts after the last answer', async () => {
  const clock = new ManualClock()
  const { sessions, closed } = sessionsAt(clock)
  sessions.closeAfter(sessionOf('s_0'), WINDOW)
  const session = sessionOf('s_1')
  sessions.add(session, me)
  sessions.closeAfter(session, WINDOW)
  const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const asked = [first, second].map(async ({ promise }) => sessions.during('s_1', me, WINDOW, async () => promise))
  const strange = Promise.withResolvers<void>()
  const foreign = sessions.during('s_1', somebody, WINDOW, async () => strange.promise)
  await clock.advance(3 * WINDOW)
  first.resolve()
  await asked[0]
  await clock.advance(3 * WINDOW)
  assert.deepEqual(closed, [])
  second.resolve()
  await asked[1]
  await clock.advance(WINDOW - 1)
  assert.deepEqual(closed, [])
  await clock.advance(1)
  assert.deepEqual(closed, ['s_1'], 'what another asks does not count')
  strange.resolve()
  await foreign
  assert.equal(clock.pending, 0)
})

test('a call that began before the session moved does not keep the session open for its new owner', async () => {
  const clock = new ManualClock()
  const { sessions, closed } = sessionsAt(clock)
  const session = sessionOf('s_1')
  const token = sessions.add(session, me) ?? ''
  const before = Promise.withResolvers<void>()
  const during = sessions.during('s_1', me, WINDOW, async () => before.promise)
  sessions.take('s_1', token, somebody, nothing)
  await sessions.leave(somebody, WINDOW)
  await clock.advance(WINDOW)
  assert.deepEqual(closed, ['s_1'])
  before.resolve()
  await during
  assert.equal(clock.pending, 0)
})

test('a change of the wall clock does not affect the timeout of a session', async () => {
  const clock = new ManualClock()
  const { sessions, closed } = sessionsAt(clock)
  const session = sessionOf('s_1')
  const token = sessions.add(session, me) ?? ''
  await sessions.leave(me, WINDOW)
  clock.jump(365 * 24 * 3_600_000)
  await clock.advance(0)
  assert.deepEqual(closed, [])
  assert.equal(sessions.take('s_1', token, me, nothing), session)
})

test('property: after any steps, a session belongs to its newest client, waits for a client or has ended', async () => {
  const step = fc.record({
    session: fc.nat({ max: 2 }),
    do: fc.constantFrom('add', 'take', 'leave', 'end', 'wrong', 'time'),
    ms: fc.constantFrom(1, WINDOW / 2, WINDOW),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const clock = new ManualClock()
      const { sessions, closed } = sessionsAt(clock)
      /** Each session with its owner and the time at which it closes. */
      const model = new Map<string, { session: RpcSession; token: string; owner: object; due: number }>()
      const owners: object[] = []
      const expected: string[] = []
      const caller = (): object => {
        owners.push({ number: owners.length })
        return owners.at(-1)!
      }
      for (const { session: number, do: what, ms } of steps) {
        const id = `s_${number}`
        const known = model.get(id)
        if (what === 'add' && known === undefined) {
          const owner = caller()
          const session = sessionOf(id)
          model.set(id, { session, token: sessions.add(session, owner) ?? '', owner, due: Number.POSITIVE_INFINITY })
        } else if (what === 'take' && known !== undefined) {
          const owner = caller()
          assert.equal(sessions.take(id, known.token, owner, nothing), known.session)
          model.set(id, { ...known, owner, due: Number.POSITIVE_INFINITY })
        } else if (what === 'leave' && known !== undefined && known.due === Number.POSITIVE_INFINITY) {
          await sessions.leave(known.owner, WINDOW)
          known.due = clock.monotonic() + WINDOW
        } else if (what === 'end' && known !== undefined) {
          await sessions.end(known.session)
          expected.push(id)
          model.delete(id)
        } else if (what === 'wrong') assert.throws(() => sessions.take(id, 'wrong', caller(), nothing), unknown)
        else if (what === 'time') {
          await clock.advance(ms)
          for (const [late] of [...model].filter(([, { due }]) => due <= clock.monotonic())) {
            expected.push(late)
            model.delete(late)
          }
        }
        assert.deepEqual(closed.toSorted(), expected.toSorted())
        assert.deepEqual(sessions.all.map((one) => one.id).toSorted(), [...model.keys()].toSorted())
        for (const [one, { owner, due }] of model)
          assert.deepEqual(
            owners.filter((other) => sessions.find(one, other) !== null),
            due === Number.POSITIVE_INFINITY ? [owner] : [],
          )
      }
      assert.equal(clock.pending, [...model.values()].filter(({ due }) => due !== Number.POSITIVE_INFINITY).length)
    }),
    { seed: SEED, numRuns: 300 },
  )
})
