import { type Clock, NamedTimers } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { reach } from '../base/run-stages.ts'
import { sha256 } from '../identity/hash.ts'
import { MAX_APPROVAL_WAIT_MS } from '../protocol/limits/approvals.ts'
import { EXIT_WAIT_SLACK_MS, KILL_GRACE_MS, MAX_UNACKED_PER_RUN, UNACKED_SLACK } from '../protocol/limits/wire.ts'
import type { ExecExit, ExecFrame } from '../protocol/wire/exec.ts'
import type { RequesterCounters } from './counters.ts'
import { type Expected, type SignedBody, compareOutput, outcomeOf, readExit } from './exit.ts'
import { Delivery, StdinSender } from './flow.ts'
import { ReceivedRun } from './received.ts'
import { ResumableTransport } from './resumable-transport.ts'
import type { RunEvent, RunOutcome, RunSink, RunSpec } from './run-spec.ts'
import type { OutgoingRunEntry } from './outgoing-runs.ts'
import type { ResumableTransportComponents, RunTransport } from './transport.ts'

export interface OutgoingRunComponents extends ResumableTransportComponents {
  readonly counters: RequesterCounters
  readonly sink: RunSink
  readonly session: OutgoingRunEntry
  /** Has the executor sign the Request for another transport. */
  readonly sign: (transport: RunTransport) => Promise<SignedBody>
}

export interface OutgoingRunInit {
  readonly spec: RunSpec
  readonly expected: Omit<Expected, 'requestSha256'>
  readonly request: SignedBody
  /** Sent behind it; null: nothing is. */
  readonly trace?: ExecFrame | null
}

type FrameOf<T extends ExecFrame['type']> = Extract<ExecFrame, { type: T }>

/**
 * The asking end of one run: sends the Request and stdin, checks and delivers what comes back, each byte
 * once over however many transports, and ends with an outcome that is only `ok` when the signed Exit says so
 * and every forwarded byte arrived.
 */
export class OutgoingRun {
  readonly #transport: ResumableTransport
  readonly #clock: Clock
  readonly #components: OutgoingRunComponents
  readonly #init: OutgoingRunInit
  readonly #delivery: Delivery
  readonly #stdin: StdinSender | null
  readonly #received = new ReceivedRun()
  readonly #done = Promise.withResolvers<RunOutcome>()
  readonly #timers: NamedTimers<'wait' | 'cancel'>
  /** The Request as it was sent last: `#signAgain` replaces it. */
  #request: SignedBody
  #startedAt = 0
  /** When it was first told that it waits for an approval; null: it does not wait. */
  #waitingSince: number | null = null
  /** Null: it never waited, or waits still. */
  #waitedMs: number | null = null
  #cancelled = false
  #ended = false
  /** What the caller's sink or source of stdin threw; `run` throws it. */
  #callerError: { readonly error: unknown } | null = null

  constructor(components: OutgoingRunComponents, init: OutgoingRunInit) {
    this.#components = components
    this.#clock = components.clock
    this.#timers = new NamedTimers(components)
    this.#init = init
    this.#request = init.request
    this.#delivery = new Delivery({
      sink: components.sink,
      clock: components.clock,
      ack: (stdout, stderr) => void this.#transport.send({ type: 'ack', request_id: this.#id, stdin: 0, stdout, stderr }),
      onSinkError: (error) => this.#callerFailed(error),
    })
    this.#stdin = this.#makeStdin()
    this.#transport = new ResumableTransport(components, {
      requestId: init.expected.requestId,
      position: () => ({ stdout: this.#received.output.stdout.next, stderr: this.#received.output.stderr.next }),
      onFrame: (frame) => this.#receive(frame),
      onResumed: (stdin) => this.#onResumed(stdin),
      signAgain: async (transport) => this.#signAgain(transport),
      onSentAgain: () => this.#resendStdin(0),
      onLost: (message, foreign) => this.#lost(message, foreign),
    })
    components.session.move = () => void this.#transport.move()
  }

  get #id(): string {
    return this.#init.expected.requestId
  }

  /**
   * Sends the Request. `left`: the caller is gone, the run is cancelled and nothing more is shown to it. Resolves when the
   * run is over; throws only what the caller's sink or stdin threw.
   */
  async run(left?: AbortSignal): Promise<RunOutcome> {
    const abandon = (): void => this.#abandon()
    this.#components.session.cancelled.addEventListener('abort', () => this.#cancel())
    left?.addEventListener('abort', abandon)
    try {
      this.#startedAt = this.#clock.monotonic()
      this.#transport.start()
      if (!this.#ended) this.#start()
      return await this.#done.promise
    } finally {
      left?.removeEventListener('abort', abandon)
    }
  }

  /** Asks the other side to end the run; its Exit is awaited for a bounded time. */
  #cancel(): void {
    if (this.#cancelled || this.#ended) return
    this.#cancelled = true
    this.#components.counters.add('runs_cancelled')
    this.#transport.send({ type: 'cancel', request_id: this.#id })
    this.#stdin?.stop()
    const patience = KILL_GRACE_MS + EXIT_WAIT_SLACK_MS
    this.#timers.set('cancel', patience, () => this.#fail(`no Exit came within ${patience} ms of the Cancel`))
  }

  #abandon(): void {
    this.#cancel()
    this.#delivery.mute()
  }

  #start(): void {
    this.#components.counters.add('runs_requested')
    this.#transport.send({ type: 'request', ...this.#request })
    this.#components.sink.sent?.()
    if (this.#init.trace) this.#transport.send(this.#init.trace)
    reach('sent', this.#id)
    this.#awaitExit(0)
    this.#stdin?.run().catch((error: unknown) => this.#callerFailed(error))
  }

  #makeStdin(): StdinSender | null {
    const source = this.#init.spec.stdin
    if (source === null) return null
    return new StdinSender({
      source,
      send: (seq, data, eof) => this.#transport.send({ type: 'stdin', request_id: this.#id, seq, data, eof }),
      drained: async () => this.#transport.drained(),
    })
  }

  /** The run was resumed on another transport: sends again what may have been lost (Cancel, acknowledgements, stdin). */
  #onResumed(stdin: number): void {
    this.#components.counters.add('runs_resumed')
    if (this.#cancelled) this.#transport.send({ type: 'cancel', request_id: this.#id })
    this.#delivery.ackAgain()
    this.#resendStdin(stdin)
  }

  #resendStdin(from: number): void {
    if (this.#stdin === null ? from !== 0 : !this.#stdin.resume(from)) this.#wrong('stdin is said to have come that was not sent')
  }

  /** Refused when the other side has already shown that it knew the run, and when the run is cancelled, before or while it is signed. */
  async #signAgain(transport: RunTransport): Promise<ExecFrame> {
    if (this.#received.begun) throw new AppError('malformed', 'the agent denies a run that it has told of')
    if (!this.#cancelled) this.#request = await this.#components.sign(transport)
    if (this.#cancelled) throw new AppError('conflict', 'it was cancelled')
    this.#components.counters.add('requests_sent_again')
    return { type: 'request', ...this.#request }
  }

  #receive(frame: ExecFrame): void {
    if (this.#ended) return
    const problem = this.#handle(frame)
    if (problem !== null) this.#wrong(problem)
  }

  #wrong(problem: string): void {
    this.#components.counters.add('foreign_frames')
    this.#fail(problem)
  }

  /** What is wrong with the frame, or null. */
  #handle(frame: ExecFrame): string | null {
    if (!('body' in frame) && frame.request_id !== this.#id) return 'a frame of another run arrived'
    switch (frame.type) {
      case 'started':
      case 'stdout':
      case 'stderr':
      case 'warning':
      case 'waiting':
        return this.#onTold(this.#received.take(frame, this.#transport))
      case 'ack':
        return this.#onAck(frame)
      case 'exit':
        this.#onExit(frame)
        return null
      default:
        return `a ${frame.type} frame came, which has no place here`
    }
  }

  #onTold(told: RunEvent | string | null): string | null {
    if (told === null || typeof told === 'string') return told
    if (told.type === 'started') this.#onStarted()
    if (told.type === 'waiting_for_approval') this.#onWaiting(told)
    const bytes = 'data' in told ? told.data.length : 0
    if (bytes > 0 && this.#delivery.queuedBytes + bytes > MAX_UNACKED_PER_RUN + UNACKED_SLACK)
      return 'the agent sent more than was acknowledged'
    this.#delivery.push(told)
    return null
  }

  /** Nothing runs before it is allowed: the time of the run is counted from then on. */
  #onWaiting(told: Extract<RunEvent, { type: 'waiting_for_approval' }>): void {
    this.#components.session.waiting(told.expires_in_ms)
    this.#waitingSince ??= this.#clock.monotonic()
    // However often it says so: nobody is asked for longer.
    const end = this.#waitingSince + MAX_APPROVAL_WAIT_MS
    this.#awaitExit(Math.min(told.expires_in_ms, Math.max(0, end - this.#clock.monotonic())))
  }

  #onStarted(): void {
    this.#components.session.running()
    if (this.#waitingSince === null) return
    this.#waitedMs = Math.round(this.#clock.monotonic() - this.#waitingSince)
    this.#waitingSince = null
    this.#awaitExit(0)
  }

  /** `longer`: what may pass before the run begins. */
  #awaitExit(longer: number): void {
    const { timeout_ms } = this.#init.spec
    if (timeout_ms === null) return
    const limit = longer + timeout_ms + EXIT_WAIT_SLACK_MS
    this.#timers.set('wait', limit, () => this.#fail(`no Exit came within ${limit} ms`))
  }

  /** Also the answer to a renewal, then with the number of the last one. */
  #onAck({ stdin }: FrameOf<'ack'>): string | null {
    if (this.#stdin === null ? stdin === 0 : this.#stdin.ack(stdin)) return null
    return 'stdin was acknowledged that was not sent'
  }

  #onExit(frame: FrameOf<'exit'>): void {
    reach('exit_received', this.#id)
    const exit = readExit(frame, { ...this.#init.expected, requestSha256: sha256(this.#request.body) })
    if (typeof exit === 'string') return this.#wrong(exit)
    reach('exit_verified', this.#id)
    this.#end()
    this.#transport.close()
    this.#settle(exit, compareOutput(exit, this.#received.output, this.#received.warnings))
  }

  #lost(message: string, foreign: boolean): void {
    if (this.#ended) return
    if (foreign) this.#components.counters.add('foreign_frames')
    this.#end()
    this.#settle(null, message)
  }

  #fail(problem: string): void {
    if (this.#ended) return
    this.#end()
    this.#transport.abort()
    this.#settle(null, problem)
  }

  #callerFailed(error: unknown): void {
    this.#callerError ??= { error }
    this.#abandon()
  }

  #end(): void {
    this.#ended = true
    this.#timers.cancelAll()
    this.#stdin?.stop()
    this.#delivery.close()
  }

  #settle(exit: ExecExit | null, problem: string | null): void {
    const { counters } = this.#components
    counters.add(problem === null ? 'runs_completed' : 'runs_incomplete')
    const outcome = outcomeOf(exit, problem, {
      requestId: this.#id,
      peer: this.#transport.peer,
      received: this.#received.output,
      elapsedMs: this.#clock.monotonic() - this.#startedAt,
      warnings: this.#received.warnings,
      neverArrived: this.#transport.neverArrived && !this.#received.begun,
      waitedMs: this.#waitingSince === null ? this.#waitedMs : Math.round(this.#clock.monotonic() - this.#waitingSince),
    })
    if (problem === null && outcome.denial_reason !== null) counters.add('runs_denied')
    void this.#answer(outcome)
  }

  /** The outcome waits until the sink has what came before it. */
  async #answer(outcome: RunOutcome): Promise<void> {
    await this.#delivery.idle()
    if (this.#callerError === null) this.#done.resolve(outcome)
    else this.#done.reject(this.#callerError.error)
  }
}
