import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { AppError } from '../../src/base/errors.ts'
import type { RunEvent, RunSink, RunSpec } from '../../src/exec/run-spec.ts'
import { OutgoingRuns } from '../../src/exec/outgoing-runs.ts'
import { EXEC_PREFIX, execFrame } from '../../src/protocol/wire/exec.ts'
import { MAX_ARGV_BYTES, MAX_RECENT_RUNS, MAX_TEXT } from '../../src/protocol/limits/wire.ts'
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

/** A sink that can wait until the output contains a text. */
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

/** Resets each stream after this number of messages. */
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

test('3 MiB in both directions and the exit code survive repeated stream losses', async (t) => {
  const pair = await execPair(t, {
    scripts: { copy: 'cat; exit 7' },
    keys: 'max_stdin_bytes = 16777216\nmax_stdout_bytes = 33554432\nwarn_stdout_bytes = 33554432',
  })
  const data = randomBytes(3 * 1024 * 1024)
  const count = cutting(pair, 5)
  const sink = new RecordingSink()
  const outcome = await ask(pair, [pair.responder.program('copy')], { stdin: stdinOf(data) }, sink)
  assert.deepEqual([outcome.message, outcome.code, outcome.incomplete, outcome.warnings], [undefined, 7, false, []])
  const out = Buffer.concat(sink.events.flatMap((event) => (event.type === 'stdout' ? [event.data] : [])))
  assert.equal(createHash('sha256').update(out).digest('hex'), createHash('sha256').update(data).digest('hex'))
  assert.ok(count.cuts >= 3, `${count.cuts} losses`)
  // The last stream may have been lost after the Exit.
  const resumed = [pair.counters.snapshot()['runs_resumed'] ?? 0, pair.responder.totals().runs_resumed]
  assert.ok(
    resumed.every((times) => times === count.cuts || times === count.cuts - 1),
    `${String(resumed)} times`,
  )
  assert.deepEqual(await pair.responder.events(outcome.request_id), ['request', 'started', 'exit'])
})

test('a message that is not an exec frame ends the stream and its child, and is counted', async (t) => {
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

test('a lease renewal is answered, so that a quiet run does not look like a dead connection', async (t) => {
  const pair = await execPair(t, { scripts: { waits: WAITS } })
  const sink = new WaitingSink()
  const outcome = ask(pair, [pair.responder.program('waits')], {}, sink)
  await sink.saw('ready')
  const { request_id } = pair.runner.sessions()[0]!
  const acks = (): number =>
    pair.channels[0]!.other.sent.filter((body) => execFrame.decode(body.subarray(EXEC_PREFIX.length)).type === 'ack').length
  const before = acks()
  pair.channels[0]!.send(request_id, encodeExecBody({ type: 'lease_renew', request_id }))
  await until(() => acks() > before)
  pair.runner.cancel(request_id)
  await outcome
})

test('a stream whose first frame is not a request starts no run', async (t) => {
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

test('a run on the own agent passes the same policy checks, without a network', async (t) => {
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

test('a request that cannot be sent is refused before a stream opens', async (t) => {
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

test('a request ID in use is a conflict, and a stopped runner accepts no run', async (t) => {
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

test('only a fixed number of the latest used IDs is remembered', () => {
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
