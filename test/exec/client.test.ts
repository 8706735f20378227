import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { AppError } from '../../src/base/errors.ts'
import type { RunEvent, RunSink, RunSpec } from '../../src/exec/run-spec.ts'
import { OutgoingRuns } from '../../src/exec/outgoing-runs.ts'
import { EXEC_PREFIX, execFrame } from '../../src/protocol/wire/exec.ts'
import { FIRST_UNACKED_PER_RUN, MAX_ARGV_BYTES, MAX_FRAME_DATA, MAX_RECENT_RUNS, MAX_TEXT } from '../../src/protocol/limits/wire.ts'
import { execPair, ownHost, type ExecPair, type LocalChannel } from '../support/exec-pair.ts'
import { until } from '../support/processes.ts'
import { RecordingSink, stdinOf } from '../support/scripted-peer.ts'
import { encodeExecBody } from '../support/exec-frames.ts'

const WAITS = 'trap "echo trapped; exit 9" TERM; echo ready; while :; do sleep 0.05; done'

const specFor = (agent_id: string, argv: readonly string[], more: Partial<RunSpec> = {}): RunSpec => ({
  agent_id,
  argv,
  stdin: null,
  timeout_ms: null,
  cwd: null,
  clamp: false,
  ...more,
})

const ask = async (
  pair: ExecPair,
  argv: readonly string[],
  more: Partial<RunSpec> = {},
  sink: RunSink = new RecordingSink(),
  signal?: AbortSignal,
) => pair.runner.run(specFor(pair.responder.own.signer.agentId, argv, more), sink, signal)

/** Resolves at the first output that contains the text. */
class WaitingSink extends RecordingSink {
  readonly #texts: { text: string; resolve: () => void }[] = []

  override event(event: RunEvent): void | Promise<void> {
    const held = super.event(event)
    for (const { text, resolve } of this.#texts) if (this.text('stdout').includes(text)) resolve()
    return held
  }

  async saw(text: string): Promise<void> {
    if (this.text('stdout').includes(text)) return
    await new Promise<void>((resolve) => this.#texts.push({ text, resolve }))
  }
}

test('a run on another host streams both outputs and ends with its signed Exit', async (t) => {
  const pair = await execPair(t, { scripts: { hello: 'echo out; echo err >&2; exit 3' } })
  const sink = new RecordingSink()
  const outcome = await ask(pair, [pair.responder.program('hello')], {}, sink)
  assert.deepEqual([outcome.ok, outcome.code, outcome.incomplete, outcome.denial_reason], [true, 3, false, null])
  assert.deepEqual([sink.text('stdout'), sink.text('stderr')], ['out\n', 'err\n'])
  assert.deepEqual([outcome.agent_id, outcome.machine_id], [pair.responder.own.signer.agentId, pair.responder.own.machine.machineId])
  assert.equal(sink.events[0]?.type, 'started')
  assert.deepEqual(await pair.responder.events(outcome.request_id), ['request', 'started', 'exit'])
  assert.equal(pair.serviceCounters.snapshot()['peer_runs'], 1)
})

test('a denial comes back as its reason, and nothing ran', async (t) => {
  const pair = await execPair(t, { scripts: { hello: 'echo out' } })
  const outcome = await ask(pair, ['/bin/rm', '-rf', '/'])
  assert.deepEqual([outcome.ok, outcome.denial_reason, outcome.incomplete], [false, 'argv_not_allowed', false])
  const cwd = await ask(pair, [pair.responder.program('hello')], { cwd: '/' })
  assert.equal(cwd.denial_reason, 'cwd_not_allowed')
  assert.equal((await ask(pair, [])).denial_reason, 'argv_not_allowed')
})

test('ten mebibytes of stdin come back as the same bytes', async (t) => {
  const pair = await execPair(t, { scripts: { copy: 'cat' }, keys: 'max_stdin_bytes = 16777216' })
  const data = randomBytes(10 * 1024 * 1024)
  const hash = createHash('sha256')
  let bytes = 0
  const sink: RunSink = {
    event: (event) => {
      if (event.type !== 'stdout') return
      hash.update(event.data)
      bytes += event.data.length
    },
  }
  const outcome = await ask(pair, [pair.responder.program('copy')], { stdin: stdinOf(data) }, sink)
  assert.deepEqual([outcome.ok, outcome.code, bytes], [true, 0, data.length])
  assert.equal(hash.digest('hex'), createHash('sha256').update(data).digest('hex'))
})

test('stdin that is not what was announced ends the run', async (t) => {
  const pair = await execPair(t, { scripts: { copy: 'cat' } })
  const outcome = await ask(pair, [pair.responder.program('copy')], {
    stdin: { ...stdinOf(Buffer.from('ab')), pieces: [new Uint8Array(32)] },
  })
  assert.ok(outcome.warnings.includes('stdin_mismatch'))
  assert.notEqual(outcome.code, 0)
})

test('a cancel reaches the child, and its last words and signal come back', async (t) => {
  const pair = await execPair(t, { scripts: { waits: WAITS } })
  const sink = new WaitingSink()
  const outcome = ask(pair, [pair.responder.program('waits')], {}, sink)
  await sink.saw('ready')
  pair.runner.cancel(pair.runner.sessions()[0]!.request_id)
  const { ok, code, warnings } = await outcome
  assert.deepEqual([ok, code, warnings], [true, 9, ['cancelled']])
  await sink.saw('trapped')
})

test('a caller that leaves ends the child', async (t) => {
  const pair = await execPair(t, { scripts: { waits: WAITS } })
  const sink = new WaitingSink()
  const caller = new AbortController()
  const outcome = ask(pair, [pair.responder.program('waits')], {}, sink, caller.signal)
  await sink.saw('ready')
  caller.abort()
  assert.equal((await outcome).code, 9)
  assert.equal(sink.text('stdout'), 'ready\n')
})

test('a lost stream that nothing follows makes the run incomplete here and ends the child there', async (t) => {
  const pair = await execPair(t, { scripts: { waits: WAITS } })
  pair.reopen = async () => {
    throw new AppError('peer_unreachable', 'nobody answers')
  }
  const sink = new WaitingSink()
  const outcome = ask(pair, [pair.responder.program('waits')], {}, sink)
  await sink.saw('ready')
  const { request_id } = pair.runner.sessions()[0]!
  pair.channels[0]!.end(new Error('reset'))
  const { ok, incomplete, code } = await outcome
  assert.deepEqual([ok, incomplete, code], [false, true, null])
  await until(async () => (await pair.responder.events(request_id)).includes('exit'))
  assert.ok((await pair.responder.events(request_id)).includes('warning'))
})

/** Resets the present stream again and again, each time after so many bodies. */
const cutting = (pair: ExecPair, bodies: number): { cuts: number } => {
  const count = { cuts: 0 }
  const watch = (channel: LocalChannel): void => {
    let heard = 0
    const { send } = channel
    channel.send = (id, ...body) => {
      if (++heard === bodies) {
        count.cuts += 1
        setImmediate(() => channel.end(new Error('reset')))
      }
      return send.call(channel, id, ...body)
    }
  }
  pair.onIncoming = watch
  return count
}

test('ten mebibytes each way arrive whole however often the stream is lost, and the exit code is kept', async (t) => {
  const pair = await execPair(t, {
    scripts: { copy: 'cat; exit 7' },
    keys: 'max_stdin_bytes = 16777216\nmax_stdout_bytes = 33554432\nwarn_stdout_bytes = 33554432',
  })
  const data = randomBytes(10 * 1024 * 1024)
  const count = cutting(pair, 16)
  const sink = new RecordingSink()
  const outcome = await ask(pair, [pair.responder.program('copy')], { stdin: stdinOf(data) }, sink)
  assert.deepEqual([outcome.message, outcome.code, outcome.incomplete, outcome.warnings], [undefined, 7, false, []])
  const out = Buffer.concat(sink.events.flatMap((event) => (event.type === 'stdout' ? [event.data] : [])))
  assert.equal(createHash('sha256').update(out).digest('hex'), createHash('sha256').update(data).digest('hex'))
  assert.ok(count.cuts >= 10, `${count.cuts} losses`)
  // The last may have come behind the Exit.
  const resumed = [pair.counters.snapshot()['runs_resumed'] ?? 0, pair.responder.totals().runs_resumed]
  assert.ok(
    resumed.every((times) => times === count.cuts || times === count.cuts - 1),
    `${String(resumed)} times`,
  )
  assert.deepEqual(await pair.responder.events(outcome.request_id), ['request', 'started', 'exit'])
})

test('an Exit whose stream is lost behind it is fetched, and nothing of the run is kept', async (t) => {
  const pair = await execPair(t, { scripts: { hello: 'echo out; exit 3' } })
  pair.onIncoming = (channel) => {
    pair.onIncoming = () => undefined
    const { send } = channel
    channel.send = (id, ...body) => {
      const frame = execFrame.decode(Buffer.concat(body).subarray(EXEC_PREFIX.length))
      if (frame.type !== 'exit') return send.call(channel, id, ...body)
      channel.end(new Error('reset'))
      return true
    }
  }
  const sink = new RecordingSink()
  const outcome = await ask(pair, [pair.responder.program('hello')], {}, sink)
  assert.deepEqual([outcome.code, outcome.incomplete, sink.text('stdout')], [3, false, 'out\n'])
  assert.equal(pair.channels.length, 2)
})

test('renewals are answered on a stream that was resumed, with what was acknowledged before', async (t) => {
  const pair = await execPair(t, { scripts: { copy: 'head -c 5; sleep 4; cat' } })
  const sink = new WaitingSink()
  const data = Buffer.from('12345678')
  const source = { ...stdinOf(data), chunks: slowly(data) }
  const outcome = ask(pair, [pair.responder.program('copy')], { stdin: source }, sink)
  await sink.saw('12345')
  pair.channels[0]!.end(new Error('reset'))
  const { code, message } = await outcome
  assert.deepEqual([code, message, sink.text('stdout')], [0, undefined, '12345678'])
})

const slowly = async function* (data: Buffer): AsyncGenerator<Buffer> {
  yield data.subarray(0, 5)
  await new Promise((resolve) => setTimeout(resolve, 3_000))
  yield data.subarray(5)
}

test('a sink that does not consume holds the child, and the run goes on when it does', async (t) => {
  const pair = await execPair(t, { scripts: { big: 'head -c 33554432 /dev/zero' }, keys: 'max_stdout_bytes = 67108864' })
  let gate = Promise.withResolvers<void>()
  let bytes = 0
  const sink: RunSink = {
    event: (event) => {
      if (event.type === 'stdout') bytes += event.data.length
      return gate.promise
    },
  }
  const outcome = ask(pair, [pair.responder.program('big')], {}, sink)
  const [channel] = await waitFor(() => (pair.channels.length > 0 ? pair.channels : null))
  const arrived = (): number => channel!.other.sent.reduce((sum, body) => sum + body.length, 0)
  await waitFor(() => (arrived() >= FIRST_UNACKED_PER_RUN - MAX_FRAME_DATA ? true : null))
  await new Promise((resolve) => setTimeout(resolve, 1_000))
  assert.ok(arrived() < 2 * FIRST_UNACKED_PER_RUN, `${arrived()} bytes came although nobody read`)
  gate.resolve()
  gate = { ...gate, promise: Promise.resolve() }
  const { ok, stdout_bytes_total } = await outcome
  assert.deepEqual([ok, stdout_bytes_total, bytes], [true, 33_554_432, 33_554_432])
})

test("a stream without room holds the executor's frames in order, and none is lost", async (t) => {
  const pair = await execPair(t, { scripts: { count: 'seq 1 20000' } })
  pair.onIncoming = (channel) => {
    channel.room = false
    const open = setInterval(() => {
      channel.makeRoom()
      channel.room = false
      if (channel.closed) clearInterval(open)
    }, 1)
  }
  const sink = new RecordingSink()
  const outcome = await ask(pair, [pair.responder.program('count')], {}, sink)
  assert.equal(outcome.ok, true)
  assert.equal(sink.text('stdout').trimEnd().split('\n').at(-1), '20000')
})

test('what a peer sends that is no exec frame ends its stream and its child, and is counted', async (t) => {
  const pair = await execPair(t, { scripts: { waits: WAITS } })
  const wrong: ((id: string) => [string, Uint8Array])[] = [
    (id) => [id, Buffer.from('x0x-exec-v1\0\xff', 'latin1')],
    (id) => [id, Buffer.from('x0x-mesg-v1\0hello')],
    (id) => ['01890a5d-ac96-774b-bcce-b302099a8057', encodeExecBody({ type: 'lease_renew', request_id: id })],
  ]
  for (const [index, make] of wrong.entries()) {
    const sink = new WaitingSink()
    const outcome = ask(pair, [pair.responder.program('waits')], {}, sink)
    await sink.saw('ready')
    const { request_id } = pair.runner.sessions()[0]!
    pair.channels.at(-1)!.send(...make(request_id))
    assert.equal((await outcome).incomplete, true)
    assert.equal(pair.serviceCounters.snapshot()['peer_malformed'], index + 1)
    await until(async () => (await pair.responder.events(request_id)).includes('exit'))
  }
})

test('a stream whose first frame is no request opens nothing', async (t) => {
  const pair = await execPair(t, { scripts: { hello: 'echo' } })
  pair.onIncoming = (channel) => {
    pair.onIncoming = () => undefined
    channel.onBody(
      '01890a5d-ac96-774b-bcce-b302099a8057',
      encodeExecBody({ type: 'cancel', request_id: '01890a5d-ac96-774b-bcce-b302099a8057' }),
    )
  }
  const outcome = await ask(pair, [pair.responder.program('hello')])
  assert.equal(outcome.incomplete, true)
  assert.deepEqual([pair.serviceCounters.snapshot()['peer_runs'], pair.serviceCounters.snapshot()['peer_malformed']], [0, 1])
})

test('renewals are answered, so that a quiet run is not taken for a dead connection', async (t) => {
  const pair = await execPair(t, { scripts: { quiet: 'sleep 5' } })
  const outcome = await ask(pair, [pair.responder.program('quiet')])
  assert.deepEqual([outcome.ok, outcome.code], [true, 0])
  assert.ok(pair.channels[0]!.other.sent.length >= 4, 'Started, two answers and Exit')
})

test('the own agent runs through the same gates, without a network', async (t) => {
  const { host, runner, counters } = await ownHost(t, { scripts: { copy: 'cat; echo err >&2; exit 4' } })
  const own = host.own.signer.agentId
  const sink = new RecordingSink()
  const outcome = await runner.run(specFor(own, [host.program('copy')], { stdin: stdinOf(Buffer.from('hello')) }), sink)
  assert.deepEqual([outcome.ok, outcome.code, outcome.agent_id, outcome.machine_id], [true, 4, own, host.own.machine.machineId])
  assert.deepEqual([sink.text('stdout'), sink.text('stderr')], ['hello', 'err\n'])
  assert.equal((await runner.run(specFor(own, ['/bin/ls']), sink)).denial_reason, 'argv_not_allowed')
  assert.deepEqual([counters.snapshot()['runs_completed'], counters.snapshot()['runs_denied']], [2, 1])
  await assert.rejects(runner.run(specFor('f'.repeat(64), ['id']), sink), { code: 'peer_unreachable' })
})

test('a request that cannot be sent is refused before anything is opened', async (t) => {
  const { host, runner } = await ownHost(t, { scripts: { hello: 'echo' } })
  const own = host.own.signer.agentId
  const sink = new RecordingSink()
  const bad: Partial<RunSpec>[] = [
    { argv: ['x'.repeat(MAX_ARGV_BYTES + 1)] },
    { argv: Array.from({ length: 1025 }, () => '') },
    { argv: ['\udc00'] },
    { cwd: '/\udc00' },
    { cwd: `/${'ü'.repeat(MAX_TEXT / 2)}` },
    { request_id: 'x' },
  ]
  for (const more of bad) await assert.rejects(runner.run({ ...specFor(own, ['id']), ...more }, sink), { code: 'bad_request' })
  const reason = new AppError('conflict', 'left')
  await assert.rejects(runner.run(specFor(own, ['id']), sink, AbortSignal.abort(reason)), reason)
  assert.deepEqual(runner.sessions(), [])
})

test('a request id in use is a conflict, and a stopped runner takes nothing', async (t) => {
  const { host, runner } = await ownHost(t, { scripts: { waits: WAITS } })
  const own = host.own.signer.agentId
  const request_id = '01890a5d-ac96-774b-bcce-b302099a8057'
  const sink = new WaitingSink()
  const outcome = runner.run(specFor(own, [host.program('waits')], { request_id }), sink)
  await sink.saw('ready')
  await assert.rejects(runner.run(specFor(own, ['id'], { request_id }), sink), { code: 'conflict', message: /has not ended/ })
  await runner.stop()
  assert.equal((await outcome).code, 9)
  await assert.rejects(runner.run(specFor(own, ['id']), sink), { code: 'shutting_down' })
})

test('the request id of a run that was sent is used up, of one that was not is free', async (t) => {
  const { host, runner } = await ownHost(t, { scripts: { hello: 'echo out' } })
  const own = host.own.signer.agentId
  const request_id = '01890a5d-ac96-774b-bcce-b302099a8057'
  const sink = new RecordingSink()
  const elsewhere = specFor('e'.repeat(64), ['id'], { request_id })
  for (let i = 0; i < 2; i++) await assert.rejects(runner.run(elsewhere, sink), { code: 'peer_unreachable' })
  const spec = specFor(own, [host.program('hello')], { request_id })
  assert.equal((await runner.run(spec, sink)).ok, true)
  await assert.rejects(runner.run(spec, sink), { code: 'conflict', message: /^request_id: the run with this id has ended/ })
  const denied = specFor(own, ['id'], { request_id: '01890a5d-ac96-774b-bcce-b302099a8058' })
  assert.equal((await runner.run(denied, sink)).denial_reason, 'argv_not_allowed')
  await assert.rejects(runner.run(denied, sink), { code: 'conflict' })
})

test('no more than a fixed number of used ids is remembered, the latest', () => {
  const sessions = new OutgoingRuns({ clock: systemClock })
  const spec = specFor('e'.repeat(64), ['id'])
  const use = (number: number): void => {
    const session = sessions.open(`id-${number}`, spec)
    session.requested('f'.repeat(64))
    session.close()
  }
  for (let number = 0; number <= MAX_RECENT_RUNS; number++) use(number)
  assert.throws(() => use(1), { code: 'conflict' })
  use(0)
})

const waitFor = async <T>(probe: () => T | null): Promise<T> => {
  for (const deadline = performance.now() + 30_000; ;) {
    assert.ok(performance.now() < deadline, 'what was waited for did not come')
    const found = probe()
    if (found !== null) return found
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
