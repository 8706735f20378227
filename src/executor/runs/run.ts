import type { Clock } from '../../base/clock.ts'
import { AppError, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { ExecCounters } from '../../diagnostics/exec-counters.ts'
import type { CellSource } from '../../process/cells.ts'
import type { Guardian } from '../../process/guardian.ts'
import type { RunningProcess } from '../../process/running-process.ts'
import { execFrame, type ExecFrame, type SignedStdin } from '../../protocol/exec.ts'
import type { RequestId } from '../../protocol/ids.ts'
import type { RunCaps } from '../../policy/permit.ts'
import type { RunState } from '../../protocol/reasons.ts'
import type { RunStory } from '../../protocol/run-story.ts'
import { Execution, reportTo, starterOf, type EndCause } from './execution.ts'
import { Lease } from './lease.ts'
import { Outbox, type Position, type UnackedTotal } from './outbox.ts'
import type { RunOutlet } from './outlet.ts'
import { greetingFrames, warningFrame } from './run-frames.ts'
import { RunWait, type Admitted, type Awaited } from './run-wait.ts'
import { StdinFeed } from './stdin-feed.ts'
import type { Warning } from './warning-text.ts'
import { TokenBucket } from '../../base/token-bucket.ts'

/** Resumes of one run that are answered: a burst and a rate, both above what a requester that pauses can reach. */
export const RESUME_BURST = 32
const RESUMES_PER_SECOND = 8

export interface RunComponents {
  readonly cells: CellSource
  readonly clock: Clock
  readonly counters: ExecCounters
  readonly guardian: Guardian
  readonly log: Logger
  readonly total: UnackedTotal
}

export interface RunInit {
  readonly requestId: RequestId
  /** As announced; null = /dev/null. */
  readonly stdin: SignedStdin | null
  /** What runs, or what is waited for until that is known. */
  readonly admission: Admitted | Awaited
  readonly outlet: RunOutlet
  /** Tells those who watch over this host; null: its requester is of this host. */
  readonly story: RunStory | null
  /** False for our own runs, which have no stream to lose. */
  readonly resumable: boolean
  /** Once: the run is over, and nobody can ask for anything of it any more. */
  onForgotten(): void
}

/**
 * One request that is permitted, or waits to be, until the moment when its requester has the Exit. It
 * outlives the stream that it came on, for as long as the lease lasts.
 */
export class Run {
  readonly #components: RunComponents
  readonly #init: RunInit
  readonly #outbox: Outbox
  /** Null while it waits to be allowed, and where it never was. */
  #execution: Execution<RunningProcess, Uint8Array> | null = null
  /** Null where it was allowed at once. */
  readonly #wait: RunWait | null
  /** As the present stream's link says. */
  #killed = false
  readonly #lease: Lease
  readonly #stdin: StdinFeed | null
  readonly #resumes: TokenBucket
  /** The requester's present stream; null while there is none. */
  #outlet: RunOutlet | null
  /** The Exit is written. */
  #finished = false
  #forgotten = false

  constructor(components: RunComponents, init: RunInit) {
    this.#components = components
    this.#init = init
    const { requestId, stdin, outlet, admission } = init
    const { clock, total } = components
    this.#outlet = outlet
    this.#outbox = new Outbox({ total }, { requestId, onRoom: () => this.#execution?.resume() })
    this.#outbox.attach(outlet, { stdout: 0, stderr: 0 })
    this.#lease = new Lease({ clock }, { onExpired: () => this.#expired() })
    this.#resumes = new TokenBucket({ clock }, { burst: RESUME_BURST, perSecond: RESUMES_PER_SECOND })
    const onAck = (stdin: number): void =>
      this.#outlet?.send(execFrame.encode({ type: 'ack', request_id: requestId, stdin, stdout: 0, stderr: 0 }))
    this.#stdin = stdin && new StdinFeed({ clock }, { announced: stdin, onAck, onMismatch: () => this.end('stdin_mismatch') })
    const isAllowed = 'permit' in admission
    this.#wait = isAllowed ? null : new RunWait({ clock }, { awaited: admission, requestId, send: (frame) => this.#tellWaiting(frame) })
    if (isAllowed) this.#execution = this.#executionOf(admission)
  }

  get requestId(): RequestId {
    return this.#init.requestId
  }

  get state(): RunState {
    if (this.#execution === null) return 'waiting_for_approval'
    return this.#execution.ending ? 'ending' : 'running'
  }

  /** What is kept for its requester, in bytes. */
  get keptBytes(): number {
    return this.#outbox.unacked
  }

  /** Its program has ended, and its Exit waits for a requester that does not have it yet. */
  get lingers(): boolean {
    return this.#finished && !this.#forgotten
  }

  /** Runs to the end; never rejects. The slot is free when it settles, and the run lingers or is forgotten. */
  async execute(): Promise<void> {
    try {
      this.#outbox.finish(await this.#toTheEnd())
      this.#finished = true
    } catch (error) {
      this.#components.log.error({ request_id: this.#init.requestId, error: errorText(error) }, 'a run failed inside')
      this.#init.story?.lost()
    } finally {
      if (!this.#finished || !this.#init.resumable || this.#outbox.closed) this.dismiss()
    }
  }

  /** The Exit. */
  async #toTheEnd(): Promise<Uint8Array> {
    if (this.#wait !== null) {
      const settled = await this.#wait.settle(this.#stdin?.whole ?? null)
      if ('exit' in settled) {
        this.#stdin?.stop()
        this.#init.story?.denied(settled.reason)
        return settled.exit
      }
      this.#execution = this.#executionOf(settled)
      // It was ended just when it was allowed.
      if (this.#wait.withdrawn !== null) this.#execution.end(this.#wait.withdrawn)
      if (this.#killed) this.#execution.kill()
    }
    return this.#execution!.run()
  }

  #executionOf({ permit, report, slot }: Admitted): Execution<RunningProcess, Uint8Array> {
    const { requestId, stdin, story } = this.#init
    return new Execution({
      start: starterOf(this.#components, permit, { stdin: stdin !== null }),
      starting: null,
      stdin: this.#stdin,
      report: reportTo(story, report),
      output: {
        push: (stream, data) => this.#outbox.push(stream, data),
        started: ({ pid }) => this.#note({ type: 'started', request_id: requestId, pid }),
        warning: (warning) => this.#warn(warning, permit.caps),
      },
      slot,
      timeoutClamped: permit.caps.timeout_clamped,
    })
  }

  #note(frame: ExecFrame): void {
    this.#outbox.note(execFrame.encode(frame))
  }

  #warn(warning: Warning, caps: RunCaps | null = null): void {
    this.#note(warningFrame(this.requestId, warning, caps))
  }

  #tellWaiting(frame: Uint8Array): void {
    this.#outlet?.send(frame)
  }

  /** The requester's stream is gone: the run waits for another one while the lease lasts. */
  lost(outlet: RunOutlet): void {
    if (outlet !== this.#outlet) return
    if (!this.#init.resumable) return this.over(outlet)
    this.#detach()
  }

  /** The requester is done with it, Exit or not. */
  over(outlet: RunOutlet): void {
    if (outlet !== this.#outlet) return
    this.#detach()
    this.#giveUp()
  }

  /**
   * Goes on on another stream of its requester, which has everything below these numbers; the stream before is closed.
   * False when the run is forgotten, or has dropped what would have to be sent.
   */
  resume(outlet: RunOutlet, from: Position): boolean {
    if (this.#forgotten || this.#outbox.closed) return false
    this.#detach()
    try {
      if (!this.#resumes.take()) throw new AppError('rate_limited', 'too many resumes')
      this.#outbox.attach(outlet, from, this.#greeting())
    } catch (error) {
      this.violated(errorText(error))
      return false
    }
    this.#outlet = outlet
    this.#lease.renew()
    return true
  }

  /** Sends what is left to the present outlet, whether it has room or not, and forgets the run. */
  dismiss(): void {
    this.#outbox.flush()
    this.forget()
  }

  /** Frees what was kept. A requester that does not have all of it gets no Exit: for it the run is incomplete. */
  forget(): void {
    if (this.#forgotten) return
    this.#forgotten = true
    this.#lease.stop()
    this.#outbox.close()
    this.#detach()
    this.#init.onForgotten()
  }

  /** A later frame of its requester. Whatever it is, the requester is still there. */
  receive(bytes: Uint8Array): void {
    this.#lease.renew()
    try {
      const frame = execFrame.decode(bytes)
      if ('body' in frame) return this.violated(`a second ${frame.type}`)
      // Another run's frame on this run's stream touches neither.
      if (frame.request_id !== this.requestId) return this.#components.counters.count('malformed_frames')
      switch (frame.type) {
        case 'lease_renew':
          return
        case 'cancel':
          return this.end('cancelled')
        case 'ack':
          return this.#outbox.ack(frame)
        case 'stdin':
          if (this.#stdin === null) throw new AppError('malformed', 'stdin that was not announced')
          return this.#stdin.accept(frame)
        default:
          return this.violated(`${frame.type} from a requester`)
      }
    } catch (error) {
      this.violated(errorText(error))
    }
  }

  /** Ends the program, then warns. Only the first cause counts. */
  end(cause: EndCause): void {
    if (this.#execution === null) this.#withdraw(cause)
    else this.#execution.end(cause)
    // No requester reads any more: a full outbox must not hold the program.
    if (cause === 'peer_disconnected' || cause === 'lease_expired') this.#outbox.close()
  }

  #withdraw(cause: EndCause): void {
    if (this.#wait?.withdraw(cause) !== true) return
    this.#stdin?.stop()
    this.#warn({ kind: cause, amount: null })
  }

  /** SIGKILL, and no more waiting for a reader. */
  kill(): void {
    this.#killed = true
    this.#execution?.kill()
    this.#outbox.close()
  }

  #greeting(): Uint8Array[] {
    return [...greetingFrames(this.requestId, this.#stdin), ...(this.#wait?.frames() ?? [])]
  }

  #detach(): void {
    const outlet = this.#outlet
    this.#outlet = null
    this.#outbox.detach()
    outlet?.close()
  }

  /** No requester will resume it: ends the program, or forgets the run where that has ended. */
  #giveUp(): void {
    if (this.#finished) this.forget()
    else this.end('peer_disconnected')
  }

  #expired(): void {
    if (this.#outlet === null) this.#giveUp()
    else if (this.#finished) this.forget()
    else this.end('lease_expired')
  }

  /** The peer broke the protocol: its stream ends now, its program as soon as it can. */
  violated(what: string): void {
    this.#components.counters.count('malformed_frames')
    this.#components.log.info({ request_id: this.#init.requestId, what }, 'a peer broke the protocol of a run')
    this.#giveUp()
    this.#detach()
  }
}
