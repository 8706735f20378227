import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import fc from 'fast-check'

import { Semaphore } from '../../src/base/semaphore.ts'

test('a turnstile lets so many in, keeps the order, and forgets who gave up', async () => {
  const turnstile = new Semaphore({ limit: 2 })
  const never = new AbortController()
  const leave = await turnstile.acquire(never.signal)
  await turnstile.acquire(never.signal)
  assert.equal(turnstile.free, false)
  const order: string[] = []
  const hasty = new AbortController()
  const first = turnstile.acquire(hasty.signal)
  const second = turnstile.acquire(never.signal).then((out) => (order.push('second'), out))
  const third = turnstile.acquire(never.signal).then((out) => (order.push('third'), out))
  hasty.abort(new Error('enough'))
  await assert.rejects(first, /enough/)
  leave()
  leave()
  ;(await second)()
  ;(await third)()
  assert.deepEqual(order, ['second', 'third'])
  assert.equal(turnstile.free, true)
})

test('who is called off in the turn in which a place was passed on has none, and takes nobody else’s', async () => {
  const turnstile = new Semaphore({ limit: 1 })
  const never = new AbortController().signal
  const leave = await turnstile.acquire(never)
  const hasty = new AbortController()
  const first = turnstile.acquire(hasty.signal)
  const second = turnstile.acquire(never)
  leave()
  hasty.abort(new Error('gone'))
  await assert.rejects(first, /gone/)
  ;(await second)()
  assert.equal(turnstile.free, true)
})

test('who needs several places waits for all of them, is not overtaken, and lets those behind it in when it gives up', async () => {
  const turnstile = new Semaphore({ limit: 4 })
  const never = new AbortController().signal
  const leave = await turnstile.acquire(never)
  const hasty = new AbortController()
  const whole = turnstile.acquire(hasty.signal, 4)
  assert.equal(turnstile.free, false)
  const order: string[] = []
  const three = turnstile.acquire(never, 3).then((out) => (order.push('three'), out))
  const last = turnstile.acquire(never, 4).then((out) => (order.push('last'), out))
  await turn()
  assert.deepEqual(order, [])
  hasty.abort(new Error('enough'))
  await assert.rejects(whole, /enough/)
  ;(await three)()
  await turn()
  assert.deepEqual(order, ['three'])
  leave()
  ;(await last)()
  assert.equal(turnstile.free, true)
})

/** What may happen, one after the other; `n` picks among those that it can happen to, and how many places who enters needs. */
type Step = { readonly kind: 'enter' | 'leave' | 'abort' | 'microtask' | 'turn'; readonly n: number }

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.record({ kind: fc.constantFrom('enter', 'enter', 'enter', 'leave', 'abort', 'microtask', 'turn'), n: fc.nat(3) }),
  { minLength: 20, maxLength: 80, size: 'max' },
)

const inOrder = (ids: readonly number[]): number[] => ids.toSorted((a, b) => a - b)

/** Does the steps, and then lets everybody leave. `queued`: those who got in and had to wait, in the order in which they did. */
const play = async (
  limit: number,
  script: readonly Step[],
): Promise<{ asked: number[]; entered: number[]; queued: number[]; free: boolean }> => {
  const turnstile = new Semaphore({ limit })
  const waiting = new Map<number, AbortController>()
  const inside: { readonly places: number; readonly leave: () => void }[] = []
  const [calledOff, waited] = [new Set<number>(), new Set<number>()]
  const entered: number[] = []
  let count = 0
  const taken = (): number => inside.reduce((sum, { places }) => sum + places, 0)
  const enter = (places: number): void => {
    const [id, controller] = [count++, new AbortController()]
    waiting.set(id, controller)
    if (!turnstile.free || taken() + places > limit) waited.add(id)
    const came = (leave: () => void): void => {
      waiting.delete(id)
      if (controller.signal.aborted) return leave()
      entered.push(id)
      inside.push({ places, leave })
      assert.ok(taken() <= limit, 'more are inside than may be')
    }
    turnstile.acquire(controller.signal, places).then(came, () => waiting.delete(id))
  }
  const abort = (n: number): void => {
    const [id, controller] = [...waiting][n % waiting.size] ?? []
    if (id !== undefined) calledOff.add(id)
    controller?.abort(new Error('gone'))
  }
  for (const { kind, n } of script)
    if (kind === 'enter') enter(1 + (n % limit))
    else if (kind === 'leave') inside.splice(n % Math.max(1, inside.length), 1)[0]?.leave()
    else if (kind === 'abort') abort(n)
    else await (kind === 'microtask' ? null : turn())
  do {
    for (const { leave } of inside.splice(0)) leave()
    await turn()
  } while (inside.length > 0)
  const asked = Array.from({ length: count }, (_, id) => id).filter((id) => !calledOff.has(id))
  return { asked, entered, queued: entered.filter((id) => waited.has(id)), free: turnstile.free }
}

test('whatever the order of coming, leaving and giving up: everybody else gets in, in their order, and no place is lost', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 3 }), steps, async (limit, script) => {
      const { asked, entered, queued, free } = await play(limit, script)
      assert.deepEqual(inOrder(entered), asked)
      assert.deepEqual(queued, inOrder(queued))
      assert.equal(free, true)
    }),
    { numRuns: 1_000 },
  )
})
