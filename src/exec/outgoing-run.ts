import { NamedTimers } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { reach } from '../base/run-stages.ts'
import { sha256 } from '../identity/hash.ts'
import { MAX_APPROVAL_WAIT_MS } from '../protocol/limits/approvals.ts'
import { EXIT_WAIT_SLACK_MS, KILL_GRACE_MS, MAX_UNACKED_PER_RUN, UNACKED_SLACK } from '../protocol/limits/wire.ts'
import type { ExecExit, ExecFrame } from '../protocol/wire/exec.ts'
import type { ExecTerminalInput } from '../protocol/wire/terminal.ts'
import type { RequesterCounters } from './counters.ts'
import { type Expected, type SignedBody, compareOutput, outcomeOf, readExit } from './exit.ts'
import { Delivery, StdinSender } from './flow.ts'
import { ReceivedRun } from './received.ts'
import { ResumableTransport } from './resumable-transport.ts'
import type { RunEvent, RunOutcome, RunSink, RunSpec } from './run-spec.ts'
import { TerminalInputSender } from './terminal-input.ts'
import type { OutgoingRunEntry } from './outgoing-runs.ts'
import type { ResumableTransportComponents, RunTransport } from './transport.ts'

export interface OutgoingRunDeps extends ResumableTransportComponents {
  readonly counters: RequesterCounters
  readonly sink: RunSink
  readonly session: OutgoingRunEntry
  /** Makes the executor sign the Request for another transport. */
  readonly sign: (transport: RunTransport) => Promise<SignedBody>
  /** Called for a denial with `draining`, with the signed Exit. */
  readonly onDraining?: (exit: SignedBody) => void
  /** Makes the executor sign input of a terminal. Absent if no run is on a terminal. */
  readonly signInput?: (input: ExecTerminalInput) => Promise<SignedBody>
}

export interface OutgoingRunInit {
  readonly spec: RunSpec
  readonly expected: Omit<Expected, 'requestSha256'>
  readonly request: SignedBody
  /** Frame that is sent after the Request, or null without a trace. */
  readonly trace?: ExecFrame | null
}

type FrameOf<T extends ExecFrame['type']> = Extract<ExecFrame, { type: T }>

/**
 * The requester's side of one run. It sends the Request and stdin, and checks and delivers the reply. Each byte is delivered once, over any
 * number of transports. The outcome is `ok` only if the signed Exit says so and every forwarded byte arrived.
 */
export class OutgoingRun {
  readonly #transport: ResumableTransport
  readonly #deps: OutgoingRunDeps
  readonly #init: OutgoingRunInit
  readonly #delivery: Delivery
  readonly #stdin: StdinSender | TerminalInputSender | null
  readonly #received = new ReceivedRun()
  readonly #done = Promise.withResolvers<RunOutcome>()
  readonly #timers: NamedTimers<'wait' | 'cancel'>
  /** The last Request that was sent. `#signAgain` replaces it. */
  #request: SignedBody
  #startedAt = 0
  /** Time of the first waiting frame, or null if the run does not wait for an approval. */
  #waitingSince: number | null = null
  /** Milliseconds spent waiting for an approval, or null while no wait has finished. */
  #waitedMs: number | null = null
  #cancelled = false
  #ended = false
  /** Error of the client's sink or stdin, which `run` throws. */
  #clientError: { readonly error: unknown } | null = null

  constructor(deps: OutgoingRunDeps, init: OutgoingRunInit) {
    this.#deps = deps
    this.#timers = new NamedTimers(deps)
    this.#init = init
    this.#request = init.request
    this.#delivery = new Delivery({
      sink: deps.sink,
      clock: deps.clock,
      ack: (stdout, stderr) => void this.#transport.send({ type: 'ack', request_id: this.#id, stdin: 0, stdout, stderr }),
      onSinkError: (error) => this.#clientFailed(error),
    })
    this.#stdin = this.#makeStdin()
    this.#transport = new ResumableTransport(deps, {
      requestId: init.expected.requestId,
      position: () => ({ stdout: this.#received.output.stdout.next, stderr: this.#received.output.stderr.next }),
      onFrame: (frame) => this.#receive(frame),
      onResumed: (stdin) => this.#onResumed(stdin),
      signAgain: async (transport) => this.#signAgain(transport),
      onSentAgain: () => this.#resendStdin(0, true),
      onConnection: (state) => deps.sink.connection?.(state),
      onLost: (message, foreign) => this.#lost(message, foreign),
    })
    deps.session.move = () => void this.#transport.move()
  }

  get #id(): string {
    return this.#init.expected.requestId
  }

  /**
   * Sends the Request and resolves when the run has ended. When `left` aborts, because the client disconnected, the run is cancelled and
   * the sink gets no further calls. Throws only errors of the sink or of stdin.
   */
  async run(left?: AbortSignal): Promise<RunOutcome> {
    const abandon = (): void => this.#abandon()
    this.#deps.session.cancelled.addEventListener('abort', () => this.#cancel())
    left?.addEventListener('abort', abandon)
    try {
      this.#startedAt = this.#deps.clock.monotonic()
      this.#transport.start()
      if (!this.#ended) this.#start()
      return await this.#done.promise
    } finally {
      left?.removeEventListener('abort', abandon)
    }
  }

  /** The nonce of a Request that was sent and to which the target never replied, or null. */
  get unheardNonce(): Uint8Array | null {
    return this.#received.begun || this.#transport.neverArrived ? null : this.#transport.requestNonce
  }

  /** Sends Cancel, and waits a bounded time for the Exit. */
  #cancel(): void {
    if (this.#cancelled || this.#ended) return
    this.#cancelled = true
    this.#deps.counters.add('runs_cancelled')
    this.#transport.send({ type: 'cancel', request_id: this.#id })
    this.#stdin?.stop()
    const limit = KILL_GRACE_MS + EXIT_WAIT_SLACK_MS
    this.#timers.set('cancel', limit, () => this.#fail(`no Exit came within ${limit} ms of the Cancel`))
  }

  #abandon(): void {
    this.#cancel()
    this.#delivery.mute()
  }

  #start(): void {
    this.#deps.counters.add('runs_requested')
    this.#transport.send(this.#requestFrame())
    this.#deps.sink.sent?.()
    if (this.#init.trace) this.#transport.send(this.#init.trace)
    reach('sent', this.#id)
    this.#awaitExit(0)
    this.#stdin?.run().then(
      // The client has closed its terminal, so the program ends.
      () => this.#init.spec.terminal && this.#cancel(),
      (error: unknown) => this.#clientFailed(error),
    )
  }

  #requestFrame(): ExecFrame {
    return { type: this.#init.spec.terminal === undefined ? 'request' : 'terminal_request', ...this.#request }
  }

  #makeStdin(): StdinSender | TerminalInputSender | null {
    const { stdin: source, terminal } = this.#init.spec
    const { clock, signInput } = this.#deps
    if (terminal !== undefined && signInput !== undefined)
      return new TerminalInputSender({
        source: terminal.input,
        clock,
        sign: async (seq, frame) => signInput({ request_sha256: sha256(this.#request.body), seq, ...frame }),
        send: (seq, signed) => this.#transport.send({ type: 'terminal_input', request_id: this.#id, seq, ...signed }),
        drained: async () => this.#transport.drained(),
      })
    if (source === null) return null
    return new StdinSender({
      source,
      send: (seq, data, eof) => this.#transport.send({ type: 'stdin', request_id: this.#id, seq, data, eof }),
      drained: async () => this.#transport.drained(),
    })
  }

  /** Sends Cancel, acknowledgements and stdin again, which may have been lost with the old transport. */
  #onResumed(stdin: number): void {
    this.#deps.counters.add('runs_resumed')
    if (this.#cancelled) this.#transport.send({ type: 'cancel', request_id: this.#id })
    this.#delivery.ackAgain()
    this.#resendStdin(stdin)
  }

  /** `isNew` means that the request was signed again, and with it all input of a terminal. */
  #resendStdin(from: number, isNew = false): void {
    const stdin = this.#stdin
    const sent = stdin instanceof TerminalInputSender && isNew ? stdin.restart() : (stdin?.resume(from) ?? from === 0)
    if (!sent) this.#wrong('the agent reports more stdin than was sent')
  }

  /** Signs the Request again. Throws if the target has already shown that it knew the run, or if the run is cancelled before the signature is there. */
  async #signAgain(transport: RunTransport): Promise<ExecFrame> {
    if (this.#received.begun) throw new AppError('malformed', 'the agent denies a run after it has started')
    if (!this.#cancelled) this.#request = await this.#deps.sign(transport)
    if (this.#cancelled) throw new AppError('conflict', 'it was cancelled')
    this.#deps.counters.add('requests_sent_again')
    return this.#requestFrame()
  }

  #receive(frame: ExecFrame): void {
    if (this.#ended) return
    const problem = this.#handle(frame)
    if (problem !== null) this.#wrong(problem)
  }

  #wrong(problem: string): void {
    this.#deps.counters.add('foreign_frames')
    this.#fail(problem)
  }

  /** Returns the problem with the frame, or null. */
  #handle(frame: ExecFrame): string | null {
    if (!('body' in frame) && frame.request_id !== this.#id) return 'a frame of another run arrived'
    switch (frame.type) {
      case 'started':
      case 'stdout':
      case 'stderr':
      case 'warning':
      case 'waiting':
        return this.#onEvent(this.#received.take(frame, this.#transport))
      case 'ack':
        return this.#onAck(frame)
      case 'exit':
        this.#onExit(frame)
        return null
      default:
        return `unexpected ${frame.type} frame`
    }
  }

  #onEvent(event: RunEvent | string | null): string | null {
    if (event === null || typeof event === 'string') return event
    if (event.type === 'started') this.#onStarted()
    if (event.type === 'waiting_for_approval') this.#onWaiting(event)
    const bytes = 'data' in event ? event.data.length : 0
    if (bytes > 0 && this.#delivery.queuedBytes + bytes > MAX_UNACKED_PER_RUN + UNACKED_SLACK)
      return 'the agent sent more than was acknowledged'
    this.#delivery.push(event)
    return null
  }

  /** The time limit of the run starts after the approval. */
  #onWaiting(event: Extract<RunEvent, { type: 'waiting_for_approval' }>): void {
    this.#deps.session.waiting(event.expires_in_ms)
    this.#waitingSince ??= this.#deps.clock.monotonic()
    // Repeated waiting frames cannot extend this time.
    const end = this.#waitingSince + MAX_APPROVAL_WAIT_MS
    this.#awaitExit(Math.min(event.expires_in_ms, Math.max(0, end - this.#deps.clock.monotonic())))
  }

  #onStarted(): void {
    this.#deps.session.running()
    if (this.#waitingSince === null) return
    this.#waitedMs = Math.round(this.#deps.clock.monotonic() - this.#waitingSince)
    this.#waitingSince = null
    this.#awaitExit(0)
  }

  /** `longer` is the time that may pass before the run starts. */
  #awaitExit(longer: number): void {
    const { timeout_ms } = this.#init.spec
    if (timeout_ms === null) return
    const limit = longer + timeout_ms + EXIT_WAIT_SLACK_MS
    this.#timers.set('wait', limit, () => this.#fail(`no Exit came within ${limit} ms`))
  }

  /** Handles an acknowledgement. Renewals are answered with one too, which repeats the last number. */
  #onAck({ stdin }: FrameOf<'ack'>): string | null {
    if (this.#stdin === null ? stdin === 0 : this.#stdin.ack(stdin)) return null
    return 'the agent acknowledged stdin that was not sent'
  }

  #onExit(frame: FrameOf<'exit'>): void {
    reach('exit_received', this.#id)
    const exit = readExit(frame, { ...this.#init.expected, requestSha256: sha256(this.#request.body) })
    if (typeof exit === 'string') return this.#wrong(exit)
    reach('exit_verified', this.#id)
    if (exit.denial_reason === 'draining') this.#deps.onDraining?.({ body: frame.body, signature: frame.signature })
    this.#end()
    this.#transport.close()
    this.#settle(exit, compareOutput(exit, this.#received.output, this.#received.warnings))
  }

  #lost(message: string, foreign: boolean): void {
    if (this.#ended) return
    if (foreign) this.#deps.counters.add('foreign_frames')
    this.#end()
    this.#settle(null, message)
  }

  #fail(problem: string): void {
    if (this.#ended) return
    this.#end()
    this.#transport.abort()
    this.#settle(null, problem)
  }

  #clientFailed(error: unknown): void {
    this.#clientError ??= { error }
    this.#abandon()
  }

  #end(): void {
    this.#ended = true
    this.#timers.cancelAll()
    this.#stdin?.stop()
    this.#delivery.close()
  }

  #settle(exit: ExecExit | null, problem: string | null): void {
    const { counters } = this.#deps
    counters.add(problem === null ? 'runs_completed' : 'runs_incomplete')
    const outcome = outcomeOf(exit, problem, {
      requestId: this.#id,
      peer: this.#transport.peer,
      received: this.#received.output,
      elapsedMs: this.#deps.clock.monotonic() - this.#startedAt,
      warnings: this.#received.warnings,
      neverArrived: this.#transport.neverArrived && !this.#received.begun,
      waitedMs: this.#waitingSince === null ? this.#waitedMs : Math.round(this.#deps.clock.monotonic() - this.#waitingSince),
    })
    if (problem === null && outcome.denial_reason !== null) counters.add('runs_denied')
    void this.#answer(outcome)
  }

  /** Returns the outcome after the sink has consumed all earlier events. */
  async #answer(outcome: RunOutcome): Promise<void> {
    await this.#delivery.idle()
    if (this.#clientError === null) this.#done.resolve(outcome)
    else this.#done.reject(this.#clientError.error)
  }
}
