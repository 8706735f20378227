import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { RpcSession } from '../../../src/doors/rpc/rpc-session.ts'
import { SessionStore } from '../../../src/doors/rpc/session-store.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const SEED = 20_261_121
const WINDOW = 60_000

const sessionOf = (id: string): RpcSession =>
  new RpcSession({
    id,
    grant: { capabilities: [], limits: {}, workspace_roots: [] },
    clientName: 'a test',
    openedAt: '2026-01-01T00:00:00.000Z',
    kept: true,
  })

const nothing = (): void => undefined
const unknown = { code: 'unknown_session' }

test('only the token of a session gets it, and what is wrong does not tell whether the session is there', () => {
  const store = new SessionStore({ clock: new ManualClock() })
  const [one, other] = [sessionOf('s_1'), sessionOf('s_2')]
  const released: string[] = []
  const [token, otherToken] = [store.add(one, () => released.push('one')), store.add(other, nothing)]
  assert.match(token, /^[A-Za-z0-9_-]{43}$/)
  assert.notEqual(token, otherToken)
  const wrong = ['', otherToken, token.slice(1), `${token}x`, ` ${token}`, token.toUpperCase(), 'x'.repeat(43), '\u{d800}']
  const tellings = [
    ...wrong.map((text) => ['s_1', text] as const),
    ['s_3', token] as const,
    ['', token] as const,
    ['__proto__', token] as const,
  ].map(([id, text]) => {
    try {
      store.take(id, text, nothing, nothing)
    } catch (error) {
      return String(error)
    }
    return assert.fail(`${id} was given to ${text}`)
  })
  assert.equal(new Set(tellings).size, 1)
  assert.deepEqual(released, [], 'who has it keeps it')
  assert.equal(store.take('s_1', token, nothing, nothing), one)
})

test('the newest caller has a session: it is taken from each one before, once', () => {
  const store = new SessionStore({ clock: new ManualClock() })
  const session = sessionOf('s_1')
  const released: number[] = []
  const token = store.add(session, () => released.push(0))
  for (const number of [1, 2, 3])
    assert.equal(
      store.take('s_1', token, () => released.push(number), nothing),
      session,
    )
  assert.deepEqual(released, [0, 1, 2])
})

test('a session waits for its caller as long as it was told, and is closed once', async () => {
  const clock = new ManualClock()
  const store = new SessionStore({ clock })
  const session = sessionOf('s_1')
  const token = store.add(session, nothing)
  let closed = 0
  const leave = (): void => store.leave(session, WINDOW, () => (closed += 1))
  await clock.advance(10 * WINDOW)
  assert.equal(closed, 0, 'while its caller is there no time runs')
  leave()
  await clock.advance(WINDOW - 1)
  assert.equal(store.take('s_1', token, nothing, nothing), session)
  await clock.advance(10 * WINDOW)
  assert.equal(closed, 0)
  leave()
  await clock.advance(WINDOW - 1)
  leave()
  await clock.advance(WINDOW - 1)
  assert.equal(closed, 0, 'who leaves again has the whole time again')
  await clock.advance(1)
  assert.equal(closed, 1)
  assert.throws(() => store.take('s_1', token, nothing, nothing), unknown)
  await clock.advance(10 * WINDOW)
  assert.deepEqual([closed, clock.pending, store.sessions.length], [1, 0, 0])
})

test('the wall clock does not decide how long a session waits', async () => {
  const clock = new ManualClock()
  const store = new SessionStore({ clock })
  const session = sessionOf('s_1')
  const token = store.add(session, nothing)
  store.leave(session, WINDOW, () => assert.fail('it was closed'))
  clock.jump(365 * 24 * 3_600_000)
  await clock.advance(0)
  assert.equal(store.take('s_1', token, nothing, nothing), session)
})

test('what was removed is gone with its time, and leaving what is not there does nothing', async () => {
  const clock = new ManualClock()
  const store = new SessionStore({ clock })
  const session = sessionOf('s_1')
  const token = store.add(session, nothing)
  store.leave(session, WINDOW, () => assert.fail('it was closed'))
  store.remove(session)
  store.remove(session)
  store.leave(session, WINDOW, () => assert.fail('it was closed'))
  assert.equal(clock.pending, 0)
  assert.throws(() => store.take('s_1', token, nothing, nothing), unknown)
})

test('whatever happens in whatever order, a session is had by the newest caller, or waits, or is gone', async () => {
  const step = fc.record({
    session: fc.nat({ max: 2 }),
    do: fc.constantFrom('add', 'take', 'leave', 'remove', 'wrong', 'time'),
    ms: fc.constantFrom(1, WINDOW / 2, WINDOW),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const clock = new ManualClock()
      const store = new SessionStore({ clock })
      /** Each with who has it and when it is closed. */
      const model = new Map<string, { session: RpcSession; token: string; owner: number; due: number }>()
      const heard: string[] = []
      const expected: string[] = []
      let callers = 0
      for (const { session: number, do: what, ms } of steps) {
        const id = `s_${number}`
        const known = model.get(id)
        if (what === 'add' && known === undefined) {
          const owner = ++callers
          const session = sessionOf(id)
          model.set(id, { session, token: store.add(session, () => heard.push(`release ${owner}`)), owner, due: Number.POSITIVE_INFINITY })
        } else if (what === 'take' && known !== undefined) {
          const owner = ++callers
          expected.push(`release ${known.owner}`)
          assert.equal(
            store.take(id, known.token, () => heard.push(`release ${owner}`), nothing),
            known.session,
          )
          model.set(id, { ...known, owner, due: Number.POSITIVE_INFINITY })
        } else if (what === 'leave' && known !== undefined) {
          store.leave(known.session, WINDOW, () => heard.push(`close ${id}`))
          known.due = clock.monotonic() + WINDOW
        } else if (what === 'remove' && known !== undefined) {
          store.remove(known.session)
          model.delete(id)
        } else if (what === 'wrong') assert.throws(() => store.take(id, 'wrong', nothing, nothing), unknown)
        else if (what === 'time') {
          await clock.advance(ms)
          const late = [...model].filter(([, { due }]) => due <= clock.monotonic()).toSorted(([, a], [, b]) => a.due - b.due)
          for (const [id] of late) {
            expected.push(`close ${id}`)
            model.delete(id)
          }
        }
        assert.deepEqual(heard.toSorted(), expected.toSorted())
        assert.deepEqual(store.sessions.map((one) => one.id).toSorted(), [...model.keys()].toSorted())
      }
      assert.equal(clock.pending, [...model.values()].filter(({ due }) => due !== Number.POSITIVE_INFINITY).length)
    }),
    { seed: SEED, numRuns: 300 },
  )
})
