import type { Clock, Timer } from '../../base/clock.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import type { ExecFrame } from '../../protocol/exec.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_UNACKED_PER_RUN, UNACKED_SLACK } from '../../protocol/limits.ts'
import { Delivery } from '../delivery.ts'
import { LIVENESS_CHECK_MS, Liveness } from '../liveness.ts'
import type { RunEvent } from '../run-spec.ts'
import type { RunTransport } from '../transport.ts'

type FrameOf<T extends ExecFrame['type']> = Extract<ExecFrame, { type: T }>

/** What came last on one stream. */
export type StreamEnd =
  | { readonly kind: 'exit'; readonly frame: FrameOf<'exit'> }
  | { readonly kind: 'state'; readonly frame: FrameOf<'detached'> }
  | { readonly kind: 'lost'; readonly error: Error }
  /** What is kept cannot be read over there, or not on. */
  | { readonly kind: 'unreadable' }

export interface AttachedStreamComponents {
  readonly clock: Clock
  readonly transport: RunTransport
  /** Throws `malformed` for what cannot be. Answers what is to be shown, or null. */
  take(frame: FrameOf<'detached' | 'started' | 'stdout' | 'stderr' | 'warning'>): RunEvent | null
  show(event: RunEvent): Promise<void>
  /** The run is there, and goes on to be told from here. */
  greet(): Promise<void>
}

/** One attach on one stream: whatever comes is taken in order and acknowledged when it was shown. */
export class AttachedStream {
  readonly #components: AttachedStreamComponents
  readonly #requestId: RequestId
  readonly #delivery: Delivery
  readonly #done = Promise.withResolvers<StreamEnd>()
  readonly #liveness = new Liveness()
  readonly #seq = { stdout: 0, stderr: 0 }
  #timer: Timer | null = null
  #state: FrameOf<'detached'> | null = null
  /** Before anything else is shown. */
  #greeting: Promise<void> | null = null
  #over = false

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

  /** Resolves when all that came was shown. Throws what the sink throws, `peer_rejected` for a peer that lies, and the signal's reason. */
  async run(question: ExecFrame, signal: AbortSignal): Promise<StreamEnd> {
    const { transport } = this.#components
    const left = new AbortController()
    signal.addEventListener('abort', () => this.#fail(signal.reason), { signal: left.signal })
    try {
      signal.throwIfAborted()
      transport.onFrame = (frame) => this.#receive(frame)
      transport.onClosed = (error) => this.#closed(error)
      if (transport.closed) return { kind: 'lost', error: new Error('the connection broke before the agent was asked') }
      transport.send(question)
      this.#liveness.asked()
      this.#look()
      const end = await this.#done.promise
      await this.#greeting
      await this.#delivery.idle()
      return end
    } finally {
      left.abort()
      this.#over = true
      this.#timer?.cancel()
      this.#delivery.close()
      transport.abort()
    }
  }

  #receive(frame: ExecFrame): void {
    if (this.#over) return
    try {
      this.#handle(frame)
    } catch (error) {
      this.#fail(
        isAppError(error, 'malformed') ? new AppError('peer_rejected', `the agent is not to be believed: ${error.message}`) : error,
      )
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
        throw new AppError('malformed', `a ${frame.type} frame came, which has no place here`)
    }
  }

  /** There will be no Exit. */
  #last(frame: FrameOf<'detached'>): void {
    if (frame.state !== 'lost' && frame.state !== 'expired') throw new AppError('malformed', `the last word is that it is ${frame.state}`)
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

  #look(): void {
    const { clock, transport } = this.#components
    // Nothing is lost between a daemon and its own executor.
    if (transport.peer.number !== 0 && this.#liveness.check(transport.heard) === 'silent')
      return this.#end({ kind: 'lost', error: new Error('nothing comes any more') })
    if (transport.peer.number === 0) this.#liveness.check(0)
    if (this.#liveness.renewalDue) {
      transport.send({ type: 'lease_renew', request_id: this.#requestId })
      this.#liveness.asked()
    }
    this.#timer = clock.setTimeout(() => this.#look(), LIVENESS_CHECK_MS)
  }

  #end(end: StreamEnd): void {
    this.#over = true
    this.#timer?.cancel()
    this.#done.resolve(end)
  }

  #fail(error: unknown): void {
    this.#over = true
    this.#delivery.mute()
    this.#done.reject(error)
  }
}
