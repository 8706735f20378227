import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import type { DetachedRunEvent } from '../../src/exec/detached/detached-types.ts'
import { begin, DETACH_KEYS, DetachedMemory, never, untilOver } from '../support/detached.ts'
import { execPair } from '../support/exec-pair.ts'
import { soon } from '../support/local-engine.ts'

/** Writes some megabytes to both streams in turn, in pieces of many sizes, with pauses. */
const CHATTY = [
  'i=0',
  'while [ $i -lt 60 ]; do',
  '  head -c $((i * 997 % 70000 + 1)) /dev/zero | tr "\\0" "a"',
  '  head -c $((i * 577 % 900 + 1)) /dev/zero | tr "\\0" "b" >&2',
  '  echo "line $i"',
  '  [ $((i % 10)) -eq 0 ] && sleep 0.05',
  '  i=$((i + 1))',
  'done',
].join('\n')

const sha = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

test('each attached client gets the same bytes from its offset on, during the run and afterwards', async (t) => {
  const pair = await execPair(t, { scripts: { chatty: CHATTY }, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'chatty')
  const early = new DetachedMemory()
  const whole = pair.detached.attach(target, 0, early, never())
  const later = [1, 2].map(async (n) => {
    await soon(() => early.bytes.length > n * 100_000)
    const from = early.bytes.length - n * 777
    const sink = new DetachedMemory()
    return { from, sink, end: await pair.detached.attach(target, from, sink, never()) }
  })
  const { outcome, next } = await whole
  assert.deepEqual([outcome?.code, outcome?.incomplete, next], [0, false, early.bytes.length])
  const all = early.bytes
  for (const { from, sink, end } of await Promise.all(later)) {
    assert.equal(sha(sink.bytes), sha(all.subarray(from)))
    assert.deepEqual([end.outcome?.incomplete, end.next], [false, all.length])
  }
  for (let round = 0; round < 6; round += 1) {
    const from = (round * 7_919_993) % (all.length + 1)
    const sink = new DetachedMemory()
    await pair.detached.attach(target, from, sink, never())
    assert.equal(sha(sink.bytes), sha(all.subarray(from)), `from ${from}`)
    let offset = from
    for (const event of sink.events) {
      if (!('data' in event)) continue
      assert.equal(event.offset, offset)
      offset += event.data.length
    }
  }
})

test('a slow reader delays neither the program nor another reader', async (t) => {
  const pair = await execPair(t, {
    scripts: { much: 'head -c 6000000 /dev/zero', wait: 'echo x' },
    entryKeys: DETACH_KEYS,
  })
  const { target } = await begin(pair, 'much')
  const gate = Promise.withResolvers<void>()
  const slow = new DetachedMemory()
  const held = pair.detached.attach(
    target,
    0,
    {
      event: async (event: DetachedRunEvent) => {
        await slow.event(event)
        if ('data' in event) await gate.promise
      },
    },
    never(),
  )
  const quick = new DetachedMemory()
  const { outcome } = await pair.detached.attach(target, 0, quick, never())
  assert.deepEqual([outcome?.incomplete, quick.bytes.length], [false, 6_000_000])
  assert.ok(slow.bytes.length < 6_000_000)
  gate.resolve()
  assert.equal((await held).outcome?.incomplete, false)
  assert.equal(slow.bytes.length, 6_000_000)
})

test('a lost connection is replaced by another that continues at the next byte', async (t) => {
  const pair = await execPair(t, { scripts: { chatty: CHATTY }, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'chatty')
  const sink = new DetachedMemory()
  const attached = pair.detached.attach(target, 0, sink, never())
  for (const least of [1, 200_000, 600_000]) {
    await soon(() => sink.bytes.length >= least)
    pair.channels.at(-1)!.end(new Error('reset'))
    await soon(() => sink.types.filter((type) => type === 'reattached').length > 0 || sink.bytes.length > 1_500_000)
  }
  const { outcome } = await attached
  assert.deepEqual([outcome?.code, outcome?.incomplete], [0, false])
  assert.ok(sink.types.includes('reattached'))
  const again = new DetachedMemory()
  await pair.detached.attach(target, 0, again, never())
  assert.equal(sha(again.bytes), sha(sink.bytes))
})

test('a detached run survives the network process of the target, and clients attach through the next one', async (t) => {
  const pair = await execPair(t, { scripts: { slow: 'echo a; sleep 0.8; echo b' }, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'slow')
  const sink = new DetachedMemory()
  const attached = pair.detached.attach(target, 0, sink, never())
  await soon(() => sink.text('stdout') === 'a\n')
  await pair.replaceNetwork()
  pair.channels.at(-1)!.end(new Error('its network half died'))
  const { outcome } = await attached
  assert.deepEqual([sink.text('stdout'), outcome?.incomplete, outcome?.code], ['a\nb\n', false, 0])
})

test('output above the limit is dropped and counted, output exactly at the limit is complete', async (t) => {
  const pair = await execPair(t, {
    scripts: { ten: 'printf 0123456789; exit 4' },
    entryKeys: `${DETACH_KEYS}\nmax_detach_output_bytes = 10`,
  })
  const { target } = await begin(pair, 'ten')
  const end = await pair.detached.attach(target, 0, new DetachedMemory(), never())
  assert.deepEqual([end.outcome?.truncated, end.outcome?.incomplete, end.next], [false, false, 10])
  const cut = await begin(pair, 'ten', { keep_bytes: 9 })
  const sink = new DetachedMemory()
  const { outcome, next } = await pair.detached.attach(cut.target, 0, sink, never())
  assert.deepEqual([outcome?.truncated, outcome?.incomplete, outcome?.code, next], [true, false, 4, 9])
  assert.ok(outcome?.warnings.includes('stdout_cap_hit'))
  const info = await pair.detached.state(cut.target, never())
  assert.deepEqual([info.bytes_kept, info.bytes_dropped, info.keep_bytes], [9, 1, 9])
})

test('a detached run whose lifetime ends is ended like a run at its time limit', async (t) => {
  const pair = await execPair(t, { scripts: { long: 'echo x; exec sleep 60' }, entryKeys: `${DETACH_KEYS}\nmax_detach_secs = 2` })
  const { target, info } = await begin(pair, 'long')
  assert.ok((info.lifetime_left_ms ?? 0) > 0 && info.lifetime_left_ms! <= 2_000)
  const { outcome } = await pair.detached.attach(target, 0, new DetachedMemory(), never())
  assert.deepEqual([outcome?.signal, outcome?.truncated, outcome?.warnings.includes('duration_cap_hit')], [15, true, true])
})

test('a client that leaves does not end the run, and an offset after the output is an error', async (t) => {
  const pair = await execPair(t, { scripts: { waits: 'echo hi; sleep 60' }, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  const leaves = new AbortController()
  const sink = new DetachedMemory()
  const attached = pair.detached.attach(target, 0, sink, leaves.signal)
  await soon(() => sink.bytes.length === 3)
  leaves.abort(new Error('gone'))
  await assert.rejects(attached, /gone/)
  assert.equal((await pair.detached.state(target, never())).state, 'running')
  await assert.rejects(pair.detached.attach(target, 4, new DetachedMemory(), never()), (error) => isAppError(error, 'bad_request'))
  await assert.rejects(pair.detached.attach(target, -1, new DetachedMemory(), never()), (error) => isAppError(error, 'bad_request'))
  await assert.rejects(pair.detached.forget(target, never()), (error) => isAppError(error, 'conflict'))
  await pair.detached.cancel(target, never())
  const { outcome } = await pair.detached.attach(target, 3, new DetachedMemory(), never())
  assert.ok(outcome?.warnings.includes('cancelled'))
  assert.equal((await untilOver(pair, target)).state, 'ended')
})

test('a sink that fails ends its attach with its own error, but not the run', async (t) => {
  const pair = await execPair(t, { scripts: { waits: 'echo hi; sleep 60' }, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  const fails = { event: async ({ type }: DetachedRunEvent) => (type === 'stdout' ? Promise.reject(new Error('full')) : undefined) }
  await assert.rejects(pair.detached.attach(target, 0, fails, never()), /full/)
  assert.equal((await pair.detached.state(target, never())).state, 'running')
})
