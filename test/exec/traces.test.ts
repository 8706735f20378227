import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { reach } from '../../src/base/run-stages.ts'
import { RequesterCounters } from '../../src/exec/counters.ts'
import { DetachedClient } from '../../src/exec/detached/detached-client.ts'
import { TracedRun } from '../../src/exec/run-traces.ts'
import { RunTraces } from '../../src/exec/run-traces.ts'
import { TraceExport } from '../../src/exec/trace-export.ts'
import { decodeExecBody } from '../../src/protocol/wire/exec.ts'
import { LEASE_EXPIRES_MS } from '../../src/protocol/limits/wire.ts'
import { MAX_TRACED_DETACHED, MAX_TRACED_RUNS } from '../../src/protocol/limits/daemon.ts'
import type { TraceContext } from '../../src/protocol/trace-context.ts'
import { ask, begin, DETACH_KEYS, never, untilOver } from '../support/detached.ts'
import { encodeExecBody } from '../support/exec-frames.ts'
import { execPair, ownHost } from '../support/exec-pair.ts'
import { until } from '../support/mesh-of-daemons.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent } from '../support/processes.ts'
import { TraceCollector } from '../support/trace-collector.ts'
import { patient } from '../support/wait-limits.ts'
import { fake } from '../support/fake.ts'

const CONTEXT: TraceContext = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' }
const nothing = (): void => undefined
const TRACES = { asked: () => CONTEXT, answered: nothing, arrived: nothing, joined: nothing, left: nothing, outlives: nothing }
const sink = { event: () => undefined }

test('a peer receives the trace context after its Request', async (t) => {
  const joined: unknown[] = []
  const peerTraces = {
    arrived: () => undefined,
    joined: (id: string, context: TraceContext) => void joined.push([id, context]),
    left: () => undefined,
    lost: () => undefined,
    outlives: () => undefined,
    resumed: () => undefined,
  }
  const pair = await execPair(t, { traces: fake(TRACES), peerTraces: fake(peerTraces) })
  const spec = { argv: [pair.responder.program('hello')], stdin: null, timeout_ms: null, cwd: null, clamp: false }
  const { ok, request_id } = await pair.runner.run({ agent_id: pair.responder.own.signer.agentId, ...spec }, sink)
  assert.equal(ok, true)
  const sent = pair.channels[0]!.sent.map((body) => decodeExecBody(body).type).filter((type) => type !== 'ack')
  assert.deepEqual(sent, ['request', 'trace'])
  assert.deepEqual(joined, [[request_id, CONTEXT]])
})

test('a trace frame does not open a run, and repeated ones do not affect a run', async (t) => {
  const pair = await execPair(t, {})
  const frame = {
    type: 'trace',
    request_id: '01900000-0000-7000-8000-000000000001',
    trace_id: Buffer.alloc(16, 1),
    span_id: Buffer.alloc(8, 1),
  } as const
  pair.onIncoming = (channel) => {
    const take = channel.onBody
    channel.onBody = (id, body) => {
      take(id, body)
      for (let n = 0; n < 3; n++) channel.onBody(id, encodeExecBody({ ...frame, request_id: id }))
    }
  }
  const spec = { argv: [pair.responder.program('hello')], stdin: null, timeout_ms: null, cwd: null, clamp: false }
  assert.equal((await pair.runner.run({ agent_id: pair.responder.own.signer.agentId, ...spec }, sink)).ok, true)
  assert.equal(pair.serviceCounters.get('peer_malformed'), 0)
  pair.onIncoming = (channel) => channel.onBody(frame.request_id, encodeExecBody(frame))
  await pair.runner.run({ agent_id: pair.responder.own.signer.agentId, ...spec }, sink).catch(() => undefined)
  assert.equal(pair.serviceCounters.get('peer_malformed'), 1)
})

test('a run of a peer is traced until it ends, even if it is resumed', async (t) => {
  const seen: string[] = []
  const note = (what: string) => () => void seen.push(what)
  const quiet = { joined: () => undefined, outlives: () => undefined }
  const peerTraces = { ...quiet, arrived: note('arrived'), left: note('left'), lost: note('lost'), resumed: note('resumed') }
  const pair = await execPair(t, { peerTraces: fake(peerTraces), scripts: { slow: 'echo begun; sleep 1; echo done' } })
  const spec = { argv: [pair.responder.program('slow')], stdin: null, timeout_ms: null, cwd: null, clamp: false }
  const run = pair.runner.run(
    { agent_id: pair.responder.own.signer.agentId, ...spec },
    {
      event: ({ type }) => {
        if (type !== 'stdout') return
        // The second output is that of the resumed run.
        seen.push(`output ${pair.channels.length}`)
        if (pair.channels.length === 1) pair.channels[0]!.end(new Error('reset'))
      },
    },
  )
  assert.equal((await run).ok, true)
  await until('the executor is done with it', () => seen.includes('left'))
  assert.deepEqual(seen, ['arrived', 'output 1', 'lost', 'resumed', 'output 2', 'left'])
})

test('the trace of a lost run ends when its lease and program must have ended, unless resumed', async () => {
  const clock = new ManualClock()
  const ended: TracedRun[] = []
  const traces = new RunTraces({ sink: { add: (run) => void ended.push(run) }, counters: new RequesterCounters(), clock })
  traces.arrived('a')
  traces.lost('a')
  await clock.advance(LEASE_EXPIRES_MS)
  traces.resumed('a')
  await clock.advance(60_000)
  assert.equal(ended.length, 0)
  traces.lost('a')
  traces.lost('nobody')
  await clock.advance(60_000)
  assert.equal(ended.length, 1)
  traces.left('a')
  assert.equal(ended.length, 1)
})

/** Traces in the order in which they ended. */
const follow = (t: TestContext) => {
  const ended: TracedRun[] = []
  const sink = { add: (run: TracedRun) => void ended.push(run) }
  const counters = new RequesterCounters()
  const following = (): RunTraces => {
    const traces = new RunTraces({ sink, counters, clock: systemClock })
    traces.start()
    t.after(() => traces.stop())
    return traces
  }
  return { ended, counters, following }
}

/** A pair with traces on requester and target. */
const followedPair = async (t: TestContext, scripts: Record<string, string>) => {
  const { ended, counters, following } = follow(t)
  const pair = await execPair(t, { entryKeys: DETACH_KEYS, scripts, traces: following(), peerTraces: following() })
  return { pair, ended, counters }
}

type SpanText = Readonly<Record<'traceId' | 'spanId' | 'parentSpanId' | 'name', string>> & {
  readonly attributes?: readonly { readonly key: string; readonly value: { readonly stringValue: string } }[]
  readonly status?: { readonly code: number }
}

const spansOf = (run: TracedRun): [SpanText, string[]] => {
  const [whole, ...parts] = run.spans(0, () => 'x') as SpanText[]
  return [whole!, parts.map(({ name }) => name.replace('x0x ', ''))]
}

const saysOf = ({ attributes = [] }: SpanText, key: string): unknown => attributes.find((one) => one.key === key)?.value.stringValue

test('a detached run has one trace on the target until its end, despite repeated queries and requests', async (t) => {
  const { pair, ended, counters } = await followedPair(t, { slow: 'echo begun; while [ ! -e "$0.go" ]; do sleep 0.05; done' })
  const request_id = '01900000-0000-7000-8000-000000000001'
  const { target } = await begin(pair, 'slow', { request_id })
  assert.deepEqual(
    pair.channels[0]!.sent.map((body) => decodeExecBody(body).type),
    ['detach_request', 'trace'],
  )
  const [exec, execParts] = spansOf(ended[0]!)
  assert.deepEqual([exec.name, saysOf(exec, 'x0x.outcome'), exec.status], ['x0x exec', 'begun', undefined])
  // Requester and target share this process and therefore their stages.
  assert.deepEqual(execParts.slice(0, 3), ['connect', 'sign', 'wait for begin'])
  await begin(pair, 'slow', { request_id, known_sha256: target.request_sha256 })
  assert.equal((await pair.detached.state(target, never())).state, 'running')
  const [again] = spansOf(ended[1]!)
  assert.deepEqual([ended.length, again.name], [2, 'x0x exec'], 'it goes on over there')
  await writeFile(`${pair.responder.program('slow')}.go`, '')
  assert.equal((await untilOver(pair, target)).state, 'ended')
  await until('its end was heard of', () => ended.length === 3)
  const [run, runParts] = spansOf(ended[2]!)
  assert.deepEqual([run.name, run.traceId, run.parentSpanId], ['x0x run', exec.traceId, exec.spanId])
  assert.deepEqual(runParts.slice(-5), ['decide', 'journal', 'spawn', 'program', 'sign exit'])
  await begin(pair, 'slow', { request_id, known_sha256: target.request_sha256 })
  await until('what is over is one short trace more on either side', () => ended.length === 5)
  assert.equal(counters.get('spans_dropped'), 0)
})

test('a detached run on the own daemon is traced as requester and as target', async (t) => {
  const { ended, following } = follow(t)
  const scripts = { slow: 'while [ ! -e "$0.go" ]; do sleep 0.05; done' }
  const { host, client, counters } = await ownHost(t, { entryKeys: DETACH_KEYS, scripts })
  const detached = new DetachedClient({ links: null, executor: client, clock: systemClock, counters, traces: following() })
  const start = async (program: string, cwd: string | null = null) => {
    const spec = {
      agent_id: host.own.signer.agentId,
      argv: [host.program(program)],
      cwd,
      clamp: false,
      lifetime_ms: null,
      keep_bytes: null,
    }
    return detached.start(spec, nothing, never())
  }
  assert.ok('info' in (await start('slow')))
  const [exec] = spansOf(ended[0]!)
  assert.deepEqual([ended.length, exec.name, saysOf(exec, 'x0x.outcome')], [1, 'x0x exec', 'begun'], 'it goes on')
  await writeFile(`${host.program('slow')}.go`, '')
  await until('its end was heard of', () => ended.length === 2)
  const [run, parts] = spansOf(ended[1]!)
  assert.deepEqual([run.name, run.traceId, run.parentSpanId], ['x0x run', exec.traceId, exec.spanId])
  assert.deepEqual(parts.slice(-3), ['spawn', 'program', 'sign exit'])
  assert.ok('denied' in (await start('slow', '/')))
  await until('one that is denied is over on both', () => ended.length === 4)
})

test('a denied run has a failed trace on requester and target', async (t) => {
  const { pair, ended } = await followedPair(t, { hello: 'echo hello' })
  const { denied } = (await ask(pair, 'hello', { cwd: '/' })) as { denied: { denial_reason: string } }
  assert.equal(denied.denial_reason, 'cwd_not_allowed')
  await until('both sides are done with it', () => ended.length === 2)
  const [exec] = ended.map((run) => spansOf(run)[0]).filter(({ name }) => name === 'x0x exec')
  assert.deepEqual([saysOf(exec!, 'x0x.denial_reason'), exec!.status], ['cwd_not_allowed', { code: 2 }])
})

test('above the limit of detached traces the oldest is dropped, and ordinary runs have separate room', () => {
  const counters = new RequesterCounters()
  const ended: TracedRun[] = []
  const traces = new RunTraces({ sink: { add: (run) => void ended.push(run) }, counters, clock: systemClock })
  traces.start()
  for (let n = 0; n < MAX_TRACED_DETACHED + 1; n++) {
    traces.arrived(`${n}`, true)
    traces.outlives(`${n}`)
    traces.left(`${n}`)
    traces.lost(`${n}`)
  }
  assert.deepEqual([ended.length, counters.get('spans_dropped')], [0, 1])
  for (let n = 0; n < MAX_TRACED_DETACHED + 1; n++) reach('over', `${n}`)
  assert.equal(ended.length, MAX_TRACED_DETACHED)
  traces.arrived('quick', true)
  reach('over', 'quick')
  traces.outlives('quick')
  traces.left('quick')
  assert.equal(ended.length, MAX_TRACED_DETACHED + 1)
  traces.stop()
})

const exportTo = (t: TestContext, url: string) => {
  const counters = new RequesterCounters()
  const exported = new TraceExport({ clock: systemClock, counters, log: silent }, { url, name: 'n', version: 'v' })
  t.after(async () => exported.stop())
  return { counters, exported }
}

const traced = (): TracedRun => {
  const run = new TracedRun({ kind: 'server', requestId: 'r', parent: null, traceId: '1'.repeat(32), spanId: '2'.repeat(16), at: 1 })
  run.end(2, {}, false)
  return run
}

test('spans that a collector does not accept are dropped and counted, and a stop does not wait for it', async (t) => {
  const refusing = await TraceCollector.start(t, 503)
  for (const url of [refusing.url, 'http://127.0.0.1:1/v1/traces']) {
    const { counters, exported } = exportTo(t, url)
    exported.add(traced())
    await exported.stop()
    assert.deepEqual([counters.get('spans_exported'), counters.get('spans_dropped')], [0, 1], url)
  }
  const deaf = await TraceCollector.start(t, null)
  const { counters, exported } = exportTo(t, deaf.url)
  for (let n = 0; n < MAX_TRACED_RUNS + 3; n++) exported.add(traced())
  assert.equal(counters.get('spans_dropped'), 3)
  const began = performance.now()
  await exported.stop()
  assert.ok(performance.now() - began < patient(4_000))
})

test('the first late trace context of the requester counts, and the number of traced runs is limited', () => {
  const counters = new RequesterCounters()
  const ended: TracedRun[] = []
  const traces = new RunTraces({ sink: { add: (run) => void ended.push(run) }, counters, clock: systemClock })
  traces.arrived('a')
  traces.joined('a', CONTEXT)
  traces.joined('a', { traceId: 'f'.repeat(32), spanId: 'f'.repeat(16) })
  traces.left('a')
  const [span] = ended[0]!.spans(0, () => 'x') as { traceId: string; parentSpanId: string }[]
  assert.deepEqual([span?.traceId, span?.parentSpanId], [CONTEXT.traceId, CONTEXT.spanId])
  for (let n = 0; n < MAX_TRACED_RUNS; n++) assert.notEqual(traces.asked(`${n}`, null), null)
  assert.equal(traces.asked('one more', null), null)
  assert.equal(counters.get('spans_dropped'), 1)
})
