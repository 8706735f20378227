import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import fc from 'fast-check'

import { Semaphore } from '../../src/base/semaphore.ts'

test('a concurrency limiter admits as many as its limit, keeps the order, and forgets waiters that give up', async () => {
  const limiter = new Semaphore({ limit: 2 })
  const never = new AbortController()
  const leave = await limiter.acquire(never.signal)
  await limiter.acquire(never.signal)
  assert.equal(limiter.free, false)
  const order: string[] = []
  const hasty = new AbortController()
  const first = limiter.acquire(hasty.signal)
  const second = limiter.acquire(never.signal).then((out) => (order.push('second'), out))
  const third = limiter.acquire(never.signal).then((out) => (order.push('third'), out))
  hasty.abort(new Error('enough'))
  await assert.rejects(first, /enough/)
  leave()
  leave()
  ;(await second)()
  ;(await third)()
  assert.deepEqual(order, ['second', 'third'])
  assert.equal(limiter.free, true)
})

test('a waiter that aborts just as it gets a place passes the place on to the next', async () => {
  const limiter = new Semaphore({ limit: 1 })
  const never = new AbortController().signal
  const leave = await limiter.acquire(never)
  const hasty = new AbortController()
  const first = limiter.acquire(hasty.signal)
  const second = limiter.acquire(never)
  leave()
  hasty.abort(new Error('gone'))
  await assert.rejects(first, /gone/)
  ;(await second)()
  assert.equal(limiter.free, true)
})

test('a waiter for several places is not overtaken, and unblocks the others when it gives up', async () => {
  const limiter = new Semaphore({ limit: 4 })
  const never = new AbortController().signal
  const leave = await limiter.acquire(never)
  const hasty = new AbortController()
  const whole = limiter.acquire(hasty.signal, 4)
  assert.equal(limiter.free, false)
  const order: string[] = []
  const three = limiter.acquire(never, 3).then((out) => (order.push('three'), out))
  const last = limiter.acquire(never, 4).then((out) => (order.push('last'), out))
  await turn()
  assert.deepEqual(order, [])
  hasty.abort(new Error('enough'))
  await assert.rejects(whole, /enough/)
  ;(await three)()
  await turn()
  assert.deepEqual(order, ['three'])
  leave()
  ;(await last)()
  assert.equal(limiter.free, true)
})

/** One step. `n` selects the affected waiter or place, and the number of places that a newcomer needs. */
type Step = { readonly kind: 'enter' | 'leave' | 'abort' | 'microtask' | 'turn'; readonly n: number }

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.record({ kind: fc.constantFrom('enter', 'enter', 'enter', 'leave', 'abort', 'microtask', 'turn'), n: fc.nat(3) }),
  { minLength: 20, maxLength: 80, size: 'max' },
)

const inOrder = (ids: readonly number[]): number[] => ids.toSorted((a, b) => a - b)

/** Performs the steps and then frees all places. `queued` lists the admitted waiters in their order of admission. */
const play = async (
  limit: number,
  script: readonly Step[],
): Promise<{ asked: number[]; entered: number[]; queued: number[]; free: boolean }> => {
  const limiter = new Semaphore({ limit })
  const waiting = new Map<number, AbortController>()
  const inside: { readonly places: number; readonly leave: () => void }[] = []
  const [calledOff, waited] = [new Set<number>(), new Set<number>()]
  const entered: number[] = []
  let count = 0
  const taken = (): number => inside.reduce((sum, { places }) => sum + places, 0)
  const enter = (places: number): void => {
    const [id, controller] = [count++, new AbortController()]
    waiting.set(id, controller)
    if (!limiter.free || taken() + places > limit) waited.add(id)
    const came = (leave: () => void): void => {
      waiting.delete(id)
      if (controller.signal.aborted) return leave()
      entered.push(id)
      inside.push({ places, leave })
      assert.ok(taken() <= limit, 'more are inside than may be')
    }
    limiter.acquire(controller.signal, places).then(came, () => waiting.delete(id))
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
  return { asked, entered, queued: entered.filter((id) => waited.has(id)), free: limiter.free }
}

test('for any order of steps, waiters that do not abort are admitted in order, and no place is lost', async () => {
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
