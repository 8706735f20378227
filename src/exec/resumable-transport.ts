import { type Clock, NamedTimers } from '../base/clock.ts'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import { LEASE_EXPIRES_MS, LEASE_RENEW_MS, RESUME_ATTEMPT_MS } from '../protocol/limits/wire.ts'
import type { ExecFrame } from '../protocol/wire/exec.ts'
import type { Reopen, ResumableTransportComponents, ResumableTransportInit, RunPeer, RunTransport } from './transport.ts'

/** Interval at which the requester checks for signs of life. It counts checks and not time, so that a machine that slept counts one. */
export const LIVENESS_CHECK_MS = 500
/** Number of checks without any byte, after an unanswered renewal, until the transport counts as silent. That is 1.5 s, which leaves 1.5 s of the lease to dial again. */
export const SILENT_CHECKS = 3

const RENEW_EVERY_CHECKS = LEASE_RENEW_MS / LIVENESS_CHECK_MS

/** Detects a silent peer. The target's network process answers renewals itself, so a run without output is not silent. */
export class Liveness {
  /** 0 if everything was answered. Otherwise the unanswered frame was sent `#unanswered - 1` checks ago. */
  #unanswered = 0
  /** `RunTransport.heard` at the last check. */
  #heard = 0
  #checks = 0

  /** Whether this check must send a renewal. */
  get renewalDue(): boolean {
    return this.#checks % RENEW_EVERY_CHECKS === 0
  }

  /** Records that a frame was sent that the peer answers. */
  asked(): void {
    if (this.#unanswered === 0) this.#unanswered = 1
  }

  answered(): void {
    this.#unanswered = 0
  }

  /** Called every `LIVENESS_CHECK_MS`. `heard` is that of the transport, or null without one. */
  check(heard: number | null): 'heard' | 'waiting' | 'silent' {
    this.#checks += 1
    if (heard !== null && heard !== this.#heard) {
      this.#heard = heard
      this.#unanswered = Math.min(this.#unanswered, 1)
      return 'heard'
    }
    return this.#unanswered > 0 && ++this.#unanswered > SILENT_CHECKS ? 'silent' : 'waiting'
  }
}

/** Minimum time between the starts of two attempts, so that an unstable path costs little. */
export const RESUME_PAUSE_MS = 200
/** How long a requester retries after the lease. The last renewal may have been in transit for this long. */
export const RESUME_SLACK_MS = 1_000

type TimerName = 'check' | 'deadline' | 'attempt' | 'pause'

/**
 * Carries the frames of one run. When a transport is lost or silent, it opens another to the same agent and machine, until the run's lease
 * must have ended. Frames sent without a transport are dropped. After `onResumed`, the owner sends again what the target needs.
 */
export class ResumableTransport {
  /** True until the Request is sent, and again after the target said that it never arrived. */
  neverArrived = true
  readonly #clock: Clock
  readonly #reopen: Reopen | null
  readonly #init: ResumableTransportInit
  readonly #timers: NamedTimers<TimerName>
  /** The transport that carries the run, or on which Resume was sent, or null. */
  #transport: RunTransport | null
  /** A silent transport that is not lost. Frames still go to it, and any message on its connection ends the search for another. */
  #silentOne: RunTransport | null = null
  /** False from the loss of a transport until the run is resumed on another, or the silent one is heard again. */
  #attached = true
  #peer: RunPeer
  /** The stream nonce that the Request quotes. */
  #requestNonce: Uint8Array
  /** Whether the Request must be, or was, sent a second time. That happens once at most. */
  #again: 'no' | 'wanted' | 'done' = 'no'
  #attempt: AbortController | null = null
  #attemptedAt = Number.NEGATIVE_INFINITY
  #sentAt: number
  readonly #liveness = new Liveness()
  #resumes = 0
  #silent = false
  /** The owner knows that the connection is lost. */
  #isLost = false
  /** Why the last transport was lost, or the last attempt failed. */
  #cause = ''
  #ended = false

  constructor(components: ResumableTransportComponents, init: ResumableTransportInit) {
    this.#clock = components.clock
    this.#timers = new NamedTimers(components)
    this.#reopen = components.reopen
    this.#transport = components.transport
    this.#peer = components.transport.peer
    this.#requestNonce = components.transport.streamNonce
    this.#init = init
    this.#sentAt = this.#clock.monotonic()
  }

  /** The agent and machine at the other end. They are the same on every transport. */
  get peer(): RunPeer {
    return this.#peer
  }

  /** The nonce of the Request that was sent last. */
  get requestNonce(): Uint8Array {
    return this.#requestNonce
  }

  /** True after the run was resumed on another transport. */
  get resumed(): boolean {
    return this.#resumes > 0
  }

  /** Starts to receive frames and to renew the lease. */
  start(): void {
    const transport = this.#transport!
    if (transport.closed) return this.#abandon('the connection to the agent was lost before the request was sent')
    this.#listen(transport)
    this.#checkLater()
  }

  /** If it returns false, the peer is slow, and the caller must wait for `drained()`. */
  send(frame: ExecFrame): boolean {
    const carrier = this.#carrier
    if (carrier === null) return true
    if (frame.type === 'request' || frame.type === 'terminal_request') this.neverArrived = false
    this.#sentAt = this.#clock.monotonic()
    return carrier.send(frame)
  }

  async drained(): Promise<void> {
    await this.#carrier?.drained()
  }

  /** Ends normally. Frames sent before still arrive. */
  close(): void {
    this.#end()
    this.#transport?.close()
  }

  /** Sends Cancel, and aborts the transport. */
  abort(): void {
    this.send({ type: 'cancel', request_id: this.#init.requestId })
    this.#end()
    this.#transport?.abort()
  }

  /** Moves to another transport if one can be opened now. Otherwise the current one stays. */
  async move(): Promise<void> {
    const before = this.#transport
    if (this.#reopen === null || !this.#attached || before === null || this.#ended) return
    const late = AbortSignal.timeout(RESUME_ATTEMPT_MS)
    const transport = await this.#reopen(false, late).catch(() => null)
    if (transport === null) return
    // Meanwhile the run may have ended, or its transport may be lost or silent, which is handled elsewhere.
    if (this.#ended || !this.#attached || this.#transport !== before || transport.closed) return transport.abort()
    this.#attached = false
    this.#cause = 'it moved to a direct connection'
    this.#limitSearch()
    this.#ask(transport)
    before.abort()
  }

  get #carrier(): RunTransport | null {
    return this.#attached ? this.#transport : this.#silentOne
  }

  #end(): void {
    this.#ended = true
    this.#leaveSilentOne()
    this.#timers.cancelAll()
    this.#attempt?.abort(new AppError('conflict', 'the run has ended'))
  }

  #abandon(message: string, foreign = false): void {
    if (this.#ended) return
    this.#end()
    this.#transport?.abort()
    this.#init.onLost(message, foreign)
  }

  #listen(transport: RunTransport): void {
    transport.onFrame = (frame) => this.#receive(transport, frame)
    transport.onClosed = (error) => this.#closed(transport, error)
  }

  #receive(transport: RunTransport, frame: ExecFrame): void {
    if (this.#ended) return
    if (transport === this.#silentOne) this.#heardAgain(transport)
    if (transport !== this.#transport) return
    this.#liveness.answered()
    if (this.#attached) return this.#init.onFrame(frame)
    if (frame.type === 'resumed' && frame.request_id === this.#init.requestId) return this.#resume(frame.stdin)
    if (frame.type === 'gone' && frame.request_id === this.#init.requestId) return this.#onGone(frame.unseen)
    this.#abandon(`a ${frame.type} frame came instead of an answer to resume`, true)
  }

  #resume(stdin: number): void {
    this.#resumes += 1
    this.#reached()
    this.#init.onResumed(stdin)
  }

  #reached(): void {
    this.#attached = true
    if (this.#isLost) this.#init.onConnection?.('resumed')
    this.#isLost = false
    this.#timers.cancel('deadline', 'attempt', 'pause')
  }

  /** The silent transport lost no frame, so it needs no Resume. */
  #heardAgain(transport: RunTransport): void {
    this.#silentOne = null
    this.#transport = transport
    this.#liveness.answered()
    this.#attempt?.abort(new AppError('conflict', 'the connection responds again'))
    this.#attempt = null
    this.#reached()
  }

  #leaveSilentOne(): void {
    this.#silentOne?.abort()
    this.#silentOne = null
  }

  #onGone(unseen: boolean): void {
    this.neverArrived = unseen
    if (!unseen || this.#again === 'done') {
      const what = unseen ? 'the request did not arrive' : 'the target does not have the run any more: it has ended, or never started'
      return this.#abandon(`the connection to the agent was lost (${this.#cause}), and ${what}`)
    }
    this.#again = 'wanted'
    this.#transport?.close()
    this.#transport = null
    this.#silent = false
    void this.#try()
  }

  async #sendAgain(transport: RunTransport): Promise<void> {
    this.#again = 'done'
    const frame = await this.#init.signAgain(transport)
    if (this.#ended) return transport.abort()
    if (transport.closed) throw new AppError('peer_unreachable', 'the connection was lost again')
    this.#transport = transport
    this.#peer = transport.peer
    this.#requestNonce = transport.streamNonce
    this.#listen(transport)
    this.#reached()
    this.send(frame)
    this.#init.onSentAgain()
  }

  #closed(transport: RunTransport, error: Error | null): void {
    if (transport === this.#silentOne) this.#silentOne = null
    if (this.#ended || transport !== this.#transport) return
    if (error === null) return this.#abandon('the agent ended the stream before the Exit')
    const foreign = isAppError(error, 'malformed')
    if (this.#reopen === null || foreign || isAppError(error, 'shutting_down'))
      return this.#abandon(`the stream to the agent ended before the Exit: ${errorText(error)}`, foreign)
    this.#lose(errorText(error), false)
  }

  /** Searches for another transport until the run's lease has expired on the target. */
  #lose(cause: string, silent: boolean): void {
    this.#transport = null
    this.#cause = cause
    this.#silent = silent
    this.#liveness.answered()
    if (this.#attached) {
      this.#attached = false
      this.#limitSearch()
    }
    if (!this.#isLost) this.#init.onConnection?.('disconnected')
    this.#isLost = true
    const pause = this.#attemptedAt + RESUME_PAUSE_MS - this.#clock.monotonic()
    if (pause > 0) this.#timers.set('pause', pause, () => void this.#try())
    else void this.#try()
  }

  #limitSearch(): void {
    const left = this.#sentAt + LEASE_EXPIRES_MS + RESUME_SLACK_MS - this.#clock.monotonic()
    this.#timers.set('deadline', left, () =>
      this.#abandon(`the connection to the agent was lost and could not be resumed in time: ${this.#cause}`),
    )
  }

  async #try(): Promise<void> {
    const attempt = new AbortController()
    const silent = this.#silent
    this.#attempt = attempt
    this.#attemptedAt = this.#clock.monotonic()
    this.#timers.set('attempt', RESUME_ATTEMPT_MS, () => attempt.abort(new AppError('timeout', 'the target did not answer in time')))
    try {
      const transport = await this.#reopen!(silent, attempt.signal)
      if (this.#attempt !== attempt || this.#ended) return transport.abort()
      if (transport.closed) throw new AppError('peer_unreachable', 'the connection was lost again')
      if (this.#again !== 'wanted') return this.#ask(transport)
      await this.#sendAgain(transport).catch((error: unknown) => {
        transport.abort()
        const message = `the connection to the agent was lost (${this.#cause}), and the request was not sent again: ${errorText(error)}`
        this.#abandon(message, isAppError(error, 'malformed'))
      })
    } catch (error) {
      if (this.#attempt === attempt && !this.#ended) this.#lose(errorText(error), silent)
    }
  }

  #ask(transport: RunTransport): void {
    this.#leaveSilentOne()
    this.#transport = transport
    this.#peer = transport.peer
    this.#listen(transport)
    this.#liveness.asked()
    const { requestId, position } = this.#init
    transport.send({ type: 'resume', request_id: requestId, ...position(), request_nonce: this.#requestNonce })
  }

  /** While a transport is silent, another is searched. The silent one is kept until then. */
  #check(): void {
    const silent = this.#silentOne
    const found = this.#liveness.check((this.#transport ?? silent)?.heard ?? null)
    if (found === 'heard' && silent !== null) this.#heardAgain(silent)
    if (found === 'silent') this.#fellSilent()
    if (this.#liveness.renewalDue) this.#renew()
    this.#checkLater()
  }

  #renew(): void {
    if (this.#reopen !== null && this.#attached) this.#liveness.asked()
    this.send({ type: 'lease_renew', request_id: this.#init.requestId })
  }

  #fellSilent(): void {
    if (this.#attached) this.#silentOne = this.#transport
    else this.#transport?.abort()
    this.#lose('the agent stopped responding', true)
  }

  #checkLater(): void {
    if (!this.#ended) this.#timers.set('check', LIVENESS_CHECK_MS, () => this.#check())
  }
}
