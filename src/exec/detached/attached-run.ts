import { type Hash, createHash } from 'node:crypto'
import type { Clock, Timer } from '../../base/clock.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import { type RequestId, fromHex, toHex } from '../../protocol/ids.ts'
import { MAX_UNACKED_PER_RUN, MAX_WARNINGS_PER_RUN, UNACKED_SLACK } from '../../protocol/limits/wire.ts'
import type { WarningKind } from '../../protocol/reasons.ts'
import type { ExecExit, ExecFrame } from '../../protocol/wire/exec.ts'
import { type SignedBody, compareOutput, outcomeOf, readExit } from '../exit.ts'
import { Delivery } from '../flow.ts'
import { LIVENESS_CHECK_MS, Liveness } from '../resumable-transport.ts'
import type { RunEvent, RunOutcome } from '../run-spec.ts'
import type { RunPeer, RunTransport } from '../transport.ts'
import { type DetachedRunEvent, type DetachedInfo, type DetachedSink, type DetachedTarget, infoOf } from './detached-types.ts'

type FrameOf<T extends ExecFrame['type']> = Extract<ExecFrame, { type: T }>

/** How one stream of an attach ended. */
export type StreamEnd =
  | { readonly kind: 'exit'; readonly frame: FrameOf<'exit'> }
  | { readonly kind: 'state'; readonly frame: FrameOf<'detached'> }
  | { readonly kind: 'lost'; readonly error: Error }
  /** The host cannot read the stored output. */
  | { readonly kind: 'unreadable' }

export interface AttachedStreamComponents {
  readonly clock: Clock
  readonly transport: RunTransport
  /** Returns the event to show, or null. Throws `malformed`. */
  take(frame: FrameOf<'detached' | 'started' | 'stdout' | 'stderr' | 'warning'>): RunEvent | null
  show(event: RunEvent): Promise<void>
  /** Called after the first state frame. Output follows from here. */
  greet(): Promise<void>
}

/** One attach on one stream. Frames are handled in order and acknowledged after they were shown. */
export class AttachedStream {
  readonly #components: AttachedStreamComponents
  readonly #requestId: RequestId
  readonly #delivery: Delivery
  readonly #done = Promise.withResolvers<StreamEnd>()
  readonly #liveness = new Liveness()
  readonly #seq = { stdout: 0, stderr: 0 }
  #timer: Timer | null = null
  #state: FrameOf<'detached'> | null = null
  /** Pending `greet`. Events are shown after it. */
  #greeting: Promise<void> | null = null
  #ended = false

  constructor(components: AttachedStreamComponents, init: { readonly requestId: RequestId }) {
    this.#components = components
    this.#requestId = init.requestId
    const { clock, transport } = components
    this.#delivery = new Delivery({
      sink: {
        event: async (event) => {
          await this.#greeting
          await components.show(event)
        },
      },
      clock,
      ack: (stdout, stderr) => void transport.send({ type: 'ack', request_id: init.requestId, stdin: 0, stdout, stderr }),
      onSinkError: (error) => this.#fail(error),
    })
  }

  /** Resolves when all received events were shown. Throws the error of the sink, `peer_rejected` for an invalid frame, and the signal's reason. */
  async run(question: ExecFrame, signal: AbortSignal): Promise<StreamEnd> {
    const { transport } = this.#components
    const left = new AbortController()
    signal.addEventListener('abort', () => this.#fail(signal.reason), { signal: left.signal })
    try {
      signal.throwIfAborted()
      transport.onFrame = (frame) => this.#receive(frame)
      transport.onClosed = (error) => this.#closed(error)
      if (transport.closed) return { kind: 'lost', error: new Error('the connection was lost before the agent received the request') }
      transport.send(question)
      this.#liveness.asked()
      this.#poll()
      const end = await this.#done.promise
      await this.#greeting
      await this.#delivery.idle()
      return end
    } finally {
      left.abort()
      this.#ended = true
      this.#timer?.cancel()
      this.#delivery.close()
      transport.abort()
    }
  }

  #receive(frame: ExecFrame): void {
    if (this.#ended) return
    try {
      this.#handle(frame)
    } catch (error) {
      this.#fail(isAppError(error, 'malformed') ? new AppError('peer_rejected', `the agent sent invalid data: ${error.message}`) : error)
    }
  }

  #handle(frame: ExecFrame): void {
    if (!('body' in frame) && frame.request_id !== this.#requestId) throw new AppError('malformed', 'a frame of another run came')
    switch (frame.type) {
      case 'ack':
        return this.#liveness.answered()
      case 'exit':
        return this.#end({ kind: 'exit', frame })
      case 'gone':
        return this.#end({ kind: 'unreadable' })
      case 'detached':
        if (this.#state !== null) return this.#last(frame)
        this.#state = frame
        this.#components.take(frame)
        this.#greeting = this.#components.greet()
        this.#greeting.catch((error: unknown) => this.#fail(error))
        return
      case 'stdout':
      case 'stderr':
        if (frame.data.length === 0 || frame.seq !== this.#seq[frame.type])
          throw new AppError('malformed', `bytes of ${frame.type} are missing`)
        this.#seq[frame.type] += 1
        return this.#push(frame)
      case 'started':
      case 'warning':
        return this.#push(frame)
      default:
        throw new AppError('malformed', `unexpected ${frame.type} frame`)
    }
  }

  /** Handles a second state frame, after which the run has no Exit. */
  #last(frame: FrameOf<'detached'>): void {
    if (frame.state !== 'lost' && frame.state !== 'expired') throw new AppError('malformed', `the last state is ${frame.state}`)
    this.#end({ kind: 'state', frame })
  }

  #push(frame: FrameOf<'started' | 'stdout' | 'stderr' | 'warning'>): void {
    if (this.#state === null) throw new AppError('malformed', `a ${frame.type} frame came before the state of the run`)
    const event = this.#components.take(frame)
    if (event === null) return
    const bytes = 'data' in event ? event.data.length : 0
    if (this.#delivery.queuedBytes + bytes > MAX_UNACKED_PER_RUN + UNACKED_SLACK)
      throw new AppError('malformed', 'the agent sent more than was acknowledged')
    this.#delivery.push(event)
  }

  #closed(error: Error | null): void {
    this.#end({ kind: 'lost', error: error ?? new AppError('peer_rejected', 'the agent closed the stream before the end of the run') })
  }

  #poll(): void {
    const { clock, transport } = this.#components
    // A transport within this daemon cannot be silent.
    if (transport.peer.number !== 0 && this.#liveness.check(transport.heard) === 'silent')
      return this.#end({ kind: 'lost', error: new Error('no more data arrives') })
    if (transport.peer.number === 0) this.#liveness.check(0)
    if (this.#liveness.renewalDue) {
      transport.send({ type: 'lease_renew', request_id: this.#requestId })
      this.#liveness.asked()
    }
    this.#timer = clock.setTimeout(() => this.#poll(), LIVENESS_CHECK_MS)
  }

  #end(end: StreamEnd): void {
    this.#ended = true
    this.#timer?.cancel()
    this.#done.resolve(end)
  }

  #fail(error: unknown): void {
    this.#ended = true
    this.#delivery.mute()
    this.#done.reject(error)
  }
}

export type PeerKeys = { readonly agentId: string; readonly machineId: string }

/** Counts and hashes one output stream. `before` is the number of skipped bytes. */
class CountedOutput {
  readonly #hash: Hash = createHash('sha256')
  before = 0
  received = 0

  get bytes(): number {
    return this.before + this.received
  }

  get sha256(): Uint8Array {
    return this.#hash.copy().digest()
  }

  add(data: Uint8Array): void {
    this.received += data.length
    this.#hash.update(data)
  }
}

/** Returns the Exit if the target signed it for one of these Requests. Otherwise returns the problem. */
export const readExitOf = (
  frame: SignedBody,
  target: DetachedTarget,
  peer: RunPeer,
  to: PeerKeys,
): { exit: ExecExit; sha256: string } | string => {
  const about = { requestId: target.request_id, from: peer, to }
  let problem = 'it answers no request of this agent'
  for (const hex of target.request_sha256) {
    const exit = readExit(frame, { ...about, requestSha256: fromHex(hex) })
    if (typeof exit !== 'string') return { exit, sha256: hex }
    problem = exit
  }
  return problem
}

export interface AttachedRunInit {
  readonly target: DetachedTarget
  readonly from: number
}

/** The output of a detached run. Each byte is shown once, over any number of streams. */
export class AttachedRun {
  readonly #sink: DetachedSink
  readonly #init: AttachedRunInit
  readonly #output = { stdout: new CountedOutput(), stderr: new CountedOutput() }
  readonly #warnings: WarningKind[] = []
  #pid: number | null = null
  #attached = 0
  #state: FrameOf<'detached'> | null = null
  #peer: RunPeer | null = null
  /** Offset of the next output byte to show. */
  #shown: number

  constructor(components: { readonly sink: DetachedSink }, init: AttachedRunInit) {
    this.#sink = components.sink
    this.#init = init
    this.#shown = init.from
  }

  /** Offset after all received output. */
  get next(): number {
    const { stdout, stderr } = this.#output
    return this.#init.from + stdout.received + stderr.received
  }

  /** Number of streams on which the state of the run was received. */
  get attached(): number {
    return this.#attached
  }

  /** Throws `malformed`, `unknown_run`, and `bad_request` if the host stores less output than the requested offset. */
  take(frame: FrameOf<'detached' | 'started' | 'stdout' | 'stderr' | 'warning'>, peer: RunPeer): RunEvent | null {
    switch (frame.type) {
      case 'detached':
        this.#attach(frame, peer)
        return null
      case 'started':
        if (this.#pid === frame.pid) return null
        if (this.#pid !== null) throw new AppError('malformed', 'the run was started twice')
        this.#pid = frame.pid
        return { ...frame, agent_id: peer.agentId, machine_id: peer.machineId }
      case 'warning':
        if (this.#warnings.includes(frame.kind)) return null
        if (this.#warnings.length >= MAX_WARNINGS_PER_RUN) throw new AppError('malformed', 'too many warnings came')
        this.#warnings.push(frame.kind)
        return frame
      case 'stdout':
      case 'stderr':
        this.#output[frame.type].add(frame.data)
        return frame
    }
  }

  async show(event: RunEvent): Promise<void> {
    if (event.type === 'started' || event.type === 'warning') return this.#emit(event)
    if (!('data' in event)) return
    const offset = this.#shown
    this.#shown += event.data.length
    return this.#emit({ type: event.type, request_id: event.request_id, data: event.data, offset })
  }

  /** The outcome from a verified Exit. Throws `peer_rejected` for an invalid Exit. */
  outcomeOf(frame: SignedBody, peer: RunPeer, own: PeerKeys): RunOutcome {
    const read = readExitOf(frame, this.#init.target, peer, own)
    if (typeof read === 'string') throw new AppError('peer_rejected', `the end of the run is not valid: ${read}`)
    const problem = compareOutput(read.exit, this.#output, this.#warnings)
    return outcomeOf(read.exit, problem, {
      requestId: this.#init.target.request_id,
      peer,
      received: this.#output,
      elapsedMs: 0,
      warnings: this.#warnings,
      waitedMs: null,
      neverArrived: false,
    })
  }

  /** State of the run after its Exit. */
  ended(peer: RunPeer): DetachedInfo {
    if (this.#state === null) throw new AppError('internal', 'a run ended that was not running')
    return { ...infoOf(this.#state, peer), state: 'ended', bytes_kept: this.next, lifetime_left_ms: null }
  }

  async #emit(event: DetachedRunEvent): Promise<void> {
    await this.#sink.event(event)
  }

  /** Emits the state of the run, or that the connection was replaced. */
  async greet(): Promise<void> {
    if (this.#state === null || this.#peer === null) return
    if (this.#attached > 1) await this.#emit({ type: 'reattached', offset: this.#shown })
    else await this.#emit({ type: 'run_state', info: infoOf(this.#state, this.#peer), from: this.#init.from })
  }

  #attach(frame: FrameOf<'detached'>, peer: RunPeer): void {
    const { target } = this.#init
    const { state, stdout_before, stderr_before, kept, request_sha256 } = frame
    if (state === 'unknown' || state === 'expired') throw unknownRun(state)
    if (kept < this.next)
      throw new AppError('bad_request', `the output was requested from byte ${this.next}, and the target keeps ${kept} bytes`, {
        data: { bytes_kept: kept, next: `start at byte ${kept} or before; 0 shows all stored output` },
      })
    if (!target.request_sha256.some((hex) => equalBytes(fromHex(hex), request_sha256)))
      throw new AppError('malformed', `it is for the Request ${toHex(request_sha256)}, which this agent did not send`)
    const { stdout, stderr } = this.#output
    if (stdout_before + stderr_before !== this.next) throw new AppError('malformed', 'it continues from another byte than requested')
    if (this.#attached === 0) {
      stdout.before = stdout_before
      stderr.before = stderr_before
    } else if (stdout_before !== stdout.bytes || stderr_before !== stderr.bytes)
      throw new AppError('malformed', 'it continues from another byte than requested')
    this.#attached += 1
    this.#state = frame
    this.#peer = peer
  }
}

export const unknownRun = (state: 'unknown' | 'expired'): AppError =>
  new AppError(
    'unknown_run',
    state === 'expired'
      ? 'the run has ended, and its target has deleted its output'
      : 'the target has no detached run of this agent with that ID: it never started, belongs to another agent, or was deleted',
    { data: { state } },
  )

export const hashOf = (body: Uint8Array): string => toHex(sha256(body))
