import type { OutputName } from '../../protocol/reasons.ts'
import type { Evictable } from '../../base/bounded-collections.ts'
import { AppError, errorText } from '../../base/errors.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { type ExecFrame, type SignedStdin, execFrame } from '../../protocol/wire/exec.ts'
import type { ExecutorServices } from '../services.ts'
import type { EndCause } from './execution.ts'
import type { PeerStreamWriter } from './frames.ts'
import { Lease } from './lease.ts'
import { Outbox, type OutboxDeps, type Position } from './outbox.ts'
import { PeerRun, type PeerRunDeps, type PeerRunInit, type PeerRunOutput } from './peer-run.ts'
import { StdinFeed } from './stdin-feed.ts'
import { TerminalFeed, type TerminalInputSigner } from './terminal-feed.ts'

/** Resumes answered per run: burst and rate are above what a requester with pauses can reach. */
export const RESUME_BURST = 32
const RESUMES_PER_SECOND = 8

export type RequesterStreamDeps = Pick<ExecutorServices, 'counters'> & PeerRunDeps & OutboxDeps

export interface RequesterStreamInit extends Pick<PeerRunInit, 'requestId' | 'admission' | 'reporter'> {
  /** Announced stdin. Null means /dev/null. */
  readonly stdin: SignedStdin | null
  /** Signer of the terminal's input. Null for a run on pipes. */
  readonly terminal?: TerminalInputSigner | null
  readonly outlet: PeerStreamWriter
  /** False for our own runs, which have no stream to lose. */
  readonly resumable: boolean
  /** Called once when the run has ended and its requester can no longer resume it. */
  onForgotten(): void
}

/**
 * The stream of a run that ends with its requester: the current stream, a lease, and frames that are not acknowledged. It outlives a lost
 * stream for the rest of the lease.
 */
export class RequesterStream implements PeerRunOutput, Evictable {
  readonly run: PeerRun
  readonly #deps: RequesterStreamDeps
  readonly #requestId: RequestId
  readonly #resumable: boolean
  readonly #onForgotten: () => void
  readonly #outbox: Outbox
  readonly #lease: Lease
  readonly #stdin: StdinFeed | null
  readonly #terminal: TerminalFeed | null
  readonly #resumes: TokenBucket
  /** Null while the requester is disconnected. */
  #outlet: PeerStreamWriter | null
  /** The outbox has the Exit. */
  #finished = false
  #forgotten = false
  readonly #taken = Promise.withResolvers<void>()

  constructor(deps: RequesterStreamDeps, init: RequesterStreamInit) {
    const { requestId, stdin: announced, terminal = null, outlet } = init
    this.#deps = deps
    this.#requestId = requestId
    this.#resumable = init.resumable
    this.#onForgotten = () => init.onForgotten()
    this.#outlet = outlet
    this.#outbox = new Outbox(deps, { requestId, onRoom: () => this.run.resume() })
    this.#outbox.attach(outlet, { stdout: 0, stderr: 0 })
    this.#lease = new Lease(deps, { onExpired: () => this.#expired() })
    this.#resumes = new TokenBucket(deps, { burst: RESUME_BURST, perSecond: RESUMES_PER_SECOND })
    const onAck = (stdin: number): void =>
      this.#outlet?.send(execFrame.encode({ type: 'ack', request_id: requestId, stdin, stdout: 0, stderr: 0 }))
    this.#stdin = announced && new StdinFeed(deps, { announced, onAck, onMismatch: () => this.run.end('stdin_mismatch') })
    const onViolated = (what: string): void => this.violated(what)
    this.#terminal = terminal && new TerminalFeed(deps, { ...terminal, onAck, onViolated })
    this.run = new PeerRun(deps, { ...init, output: this, stdin: this.#stdin ?? this.#terminal })
  }

  /** Bytes stored for the requester. */
  get retainedBytes(): number {
    return this.#outbox.unacked
  }

  /** The program has ended, and the requester does not have the Exit yet. */
  get awaitsAck(): boolean {
    return this.#finished && !this.#forgotten
  }

  /** Resolves when the run is forgotten, or its requester is disconnected. */
  async taken(): Promise<void> {
    if (this.#outlet !== null) await this.#taken.promise
  }

  /** Not stored in the outbox, because a later stream receives the state of that time. */
  waiting(frame: Uint8Array): void {
    this.#outlet?.send(frame)
  }

  push(stream: OutputName, data: Uint8Array): boolean {
    return this.#outbox.push(stream, data)
  }

  note(frame: Uint8Array): void {
    this.#outbox.note(frame)
  }

  finish(exit: Uint8Array | null): void {
    if (exit !== null) this.#outbox.finish(exit)
    this.#finished = exit !== null
    if (!this.#finished || !this.#resumable || this.#outbox.closed) this.dismiss()
  }

  killed(): void {
    this.#outbox.close()
  }

  /** The stream was lost: the run waits for another one while the lease lasts. */
  lost(outlet: PeerStreamWriter): void {
    if (outlet !== this.#outlet) return
    if (!this.#resumable) return this.over(outlet)
    this.#detach()
  }

  /** The requester is done with the run, with or without the Exit. */
  over(outlet: PeerStreamWriter): void {
    if (outlet !== this.#outlet) return
    this.#detach()
    this.#abandon('peer_disconnected')
  }

  /**
   * Continues on another stream of the requester, which has all frames below `from`. The old stream is closed. False if the run is
   * forgotten or needed frames were dropped.
   */
  resume(outlet: PeerStreamWriter, from: Position): boolean {
    if (this.#forgotten || this.#outbox.closed) return false
    this.#detach()
    try {
      if (!this.#resumes.take()) throw new AppError('rate_limited', 'too many resumes')
      this.#outbox.attach(outlet, from, [...this.#greeting(), ...this.run.waitingFrames])
    } catch (error) {
      this.violated(errorText(error))
      return false
    }
    this.#outlet = outlet
    this.#lease.renew()
    return true
  }

  /** Sends the rest even if the outlet is full, and forgets the run. */
  dismiss(): void {
    this.#outbox.flush()
    this.evict()
  }

  /** Frees the stored frames. A requester that lacks some gets no Exit: for it the run is incomplete. */
  evict(): void {
    if (this.#forgotten) return
    this.#forgotten = true
    this.#lease.stop()
    this.#outbox.close()
    this.#detach()
    this.#onForgotten()
  }

  /** Every frame renews the lease. */
  receive(bytes: Uint8Array): void {
    this.#lease.renew()
    try {
      const frame = execFrame.decode(bytes)
      if ('body' in frame && frame.type !== 'terminal_input') return this.violated(`a second ${frame.type}`)
      // A frame of another run affects neither run.
      if (frame.request_id !== this.#requestId) return this.#deps.counters.count('malformed_frames')
      switch (frame.type) {
        case 'lease_renew':
          return
        case 'cancel':
          return this.run.end('cancelled')
        case 'ack':
          return this.#outbox.ack(frame)
        case 'stdin':
          if (this.#stdin === null) throw new AppError('malformed', 'stdin that was not announced')
          return this.#stdin.accept(frame)
        case 'terminal_input':
          if (this.#terminal === null) throw new AppError('malformed', 'terminal input for a run on pipes')
          return this.#terminal.accept(frame)
        default:
          return this.violated(`${frame.type} from a requester`)
      }
    } catch (error) {
      this.violated(errorText(error))
    }
  }

  /** The peer broke the protocol: closes its stream and ends its program. */
  violated(what: string): void {
    this.#deps.counters.count('malformed_frames')
    this.#deps.log.info({ request_id: this.#requestId, what }, 'a peer broke the protocol of a run')
    this.#abandon('peer_disconnected')
    this.#detach()
  }

  /** How far the input was received and acknowledged, for a resuming requester. */
  #greeting(): Uint8Array[] {
    const { received, acked } = this.#stdin ?? this.#terminal ?? { received: 0, acked: 0 }
    const of = { request_id: this.#requestId }
    const frames: ExecFrame[] = [
      { type: 'resumed', ...of, stdin: received },
      { type: 'ack', ...of, stdin: acked, stdout: 0, stderr: 0 },
    ]
    return frames.map((frame) => execFrame.encode(frame))
  }

  #detach(): void {
    const outlet = this.#outlet
    this.#outlet = null
    this.#taken.resolve()
    this.#outbox.detach()
    outlet?.close()
  }

  #expired(): void {
    this.#abandon(this.#outlet === null ? 'peer_disconnected' : 'lease_expired')
  }

  /** The requester is gone. Forgets an ended run; ends any other, which a full outbox must not hold up. */
  #abandon(cause: EndCause): void {
    if (this.#finished) return this.evict()
    this.run.end(cause)
    this.#outbox.close()
  }
}
