import type { Clock } from '../../base/clock.ts'
import { AppError, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { ExecCounters } from '../../diagnostics/exec-counters.ts'
import type { Permit } from '../../policy/permit.ts'
import type { Slot } from '../../policy/slots.ts'
import type { Cells } from '../../process/cells.ts'
import type { Guardian } from '../../process/guardian.ts'
import { startProcess, type RunningProcess } from '../../process/running-process.ts'
import { execFrame, type ExecFrame } from '../../protocol/exec.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { RESUME_BURST, RESUMES_PER_SECOND } from '../../protocol/resume-limits.ts'
import type { WarningKind } from '../../protocol/reasons.ts'
import { factsOf, neverRan } from './exit-writer.ts'
import { Lease } from './lease.ts'
import { Outbox, type Position, type UnackedTotal } from './outbox.ts'
import type { RunOutlet } from './outlet.ts'
import type { RunReport } from './report.ts'
import { StdinFeed, type StdinAnnouncement } from './stdin-feed.ts'
import { TokenBucket } from '../../base/token-bucket.ts'
import { WARNING_TEXT } from './warning-text.ts'

/** Why a run was ended before its program was done. Each is also a warning. */
export type EndCause = Extract<
  WarningKind,
  'cancelled' | 'lease_expired' | 'peer_disconnected' | 'stdin_mismatch' | 'daemon_stopping' | 'access_revoked'
>

export interface RunComponents {
  readonly cells: Pick<Cells, 'open'>
  readonly clock: Clock
  readonly counters: ExecCounters
  readonly guardian: Guardian
  readonly log: Logger
  readonly total: UnackedTotal
}

export interface RunInit {
  readonly requestId: RequestId
  /** As announced, or as it comes; null = /dev/null. */
  readonly stdin: StdinAnnouncement | null
  readonly permit: Permit
  readonly report: RunReport
  readonly slot: Slot
  readonly outlet: RunOutlet
  /** False for our own runs, which have no stream to lose. */
  readonly resumable: boolean
  /** Ends when nothing is heard of its requester for so long. */
  readonly leased: boolean
  /** Once: the run is over, and nobody can ask for anything of it any more. */
  onForgotten(): void
}

/**
 * One permitted request, from its line in the journal to the moment when its requester has the Exit. It
 * outlives the stream that it came on, for as long as the lease lasts.
 */
export class Run {
  readonly #components: RunComponents
  readonly #init: RunInit
  readonly #outbox: Outbox
  /** Null: what carries it is never lost without a word. */
  readonly #lease: Lease | null
  readonly #stdin: StdinFeed | null
  readonly #resumes: TokenBucket
  /** The requester's present stream; null while there is none. */
  #outlet: RunOutlet | null
  #process: RunningProcess | null = null
  #cause: EndCause | null = null
  #killed = false
  /** The program is gone, or never was. */
  #over = false
  /** The Exit is written. */
  #finished = false
  #forgotten = false

  constructor(components: RunComponents, init: RunInit) {
    this.#components = components
    this.#init = init
    const { requestId, stdin, outlet } = init
    const { clock, total } = components
    this.#outlet = outlet
    this.#outbox = new Outbox({ total }, { requestId, onRoom: () => this.#process?.resume() })
    this.#outbox.attach(outlet, { stdout: 0, stderr: 0 })
    this.#lease = init.leased ? new Lease({ clock }, { onExpired: () => this.#expired() }) : null
    this.#resumes = new TokenBucket({ clock }, { burst: RESUME_BURST, perSecond: RESUMES_PER_SECOND })
    const onAck = (stdin: number): void =>
      this.#outlet?.send(execFrame.encode({ type: 'ack', request_id: requestId, stdin, stdout: 0, stderr: 0 }))
    this.#stdin = stdin && new StdinFeed({ clock }, { announced: stdin, onAck, onMismatch: () => this.end('stdin_mismatch') })
  }

  get requestId(): RequestId {
    return this.#init.requestId
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
      this.#outbox.finish(await this.#go())
      this.#finished = true
    } catch (error) {
      this.#components.log.error({ request_id: this.#init.requestId, error: errorText(error) }, 'a run failed inside')
      this.#process?.kill()
      await this.#process?.ended.catch(() => undefined)
    } finally {
      this.#settle()
      if (!this.#finished || !this.#init.resumable || this.#outbox.closed) this.dismiss()
    }
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
   * Its requester is there again, on another stream, and has everything below these numbers: the rest is
   * said there. The newest stream wins. False when there is nothing to go on with.
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
    this.renew()
    return true
  }

  /** What is still to be said is said now, room or not, to whoever is there. Then it is forgotten. */
  dismiss(): void {
    this.#outbox.flush()
    this.forget()
  }

  /** Lets go of what was kept. A requester that has not got all of it hears no Exit: for it the run is incomplete. */
  forget(): void {
    if (this.#forgotten) return
    this.#forgotten = true
    this.#lease?.stop()
    this.#outbox.close()
    this.#detach()
    this.#init.onForgotten()
  }

  /** Its requester is still there. */
  renew(): void {
    this.#lease?.renew()
  }

  /** Everything below these numbers has been consumed. Throws `malformed` for numbers that were never sent. */
  acknowledged(seqs: Position): void {
    this.#outbox.ack(seqs)
  }

  /** Throws `malformed` where it breaks the protocol of stdin. */
  acceptStdin(frame: { seq: number; data: Uint8Array; eof: boolean }): void {
    if (this.#stdin === null) throw new AppError('malformed', 'stdin that was not announced')
    this.#stdin.accept(frame)
  }

  /** What runs, for who may speak to it; null before and after. */
  get program(): Pick<RunningProcess, 'signal' | 'resize' | 'hangUp'> | null {
    return this.#over ? null : this.#process
  }

  /** Ends the program: signal first, tell second. The first cause counts. */
  end(cause: EndCause): void {
    if (!this.#over && this.#cause === null) {
      this.#cause = cause
      this.#process?.terminate()
      this.#warn(cause, null)
    }
    // Nobody reads any more: what the program still writes must not hold it.
    if (cause === 'peer_disconnected' || cause === 'lease_expired') this.#outbox.close()
  }

  /** SIGKILL, and no more waiting for a reader. */
  kill(): void {
    this.#killed = true
    this.#process?.kill()
    this.#outbox.close()
  }

  /** The last frame. */
  async #go(): Promise<Uint8Array> {
    const { cells, guardian, clock } = this.#components
    const { report, stdin, permit } = this.#init
    if (!(await report.requested(permit))) return report.denied('audit_unavailable', null)
    if (this.#cause !== null) {
      report.allowed()
      return report.ended(neverRan(null))
    }
    const start = await startProcess(permit, { cells, clock, guardian, handlers: this.#handlers() }, { stdin: stdin !== null })
    if (start.kind === 'spawn_failed') return report.denied('spawn_failed', start.detail, start.ran)
    report.allowed()
    this.#began(start.process)
    const end = await start.process.ended
    this.#settle()
    return report.ended(factsOf(end))
  }

  /** How far stdin has come, and how much of it was taken: what a requester needs to go on. */
  #greeting(): Uint8Array[] {
    const request_id = this.#init.requestId
    const { received, acked } = this.#stdin ?? { received: 0, acked: 0 }
    const frames: ExecFrame[] = [
      { type: 'resumed', request_id, stdin: received },
      { type: 'ack', request_id, stdin: acked, stdout: 0, stderr: 0 },
    ]
    return frames.map((frame) => execFrame.encode(frame))
  }

  #detach(): void {
    const outlet = this.#outlet
    this.#outlet = null
    this.#outbox.detach()
    outlet?.close()
  }

  /** Nobody will ask for the rest: what runs is ended. */
  #giveUp(): void {
    if (this.#finished) this.forget()
    else this.end('peer_disconnected')
  }

  #expired(): void {
    if (this.#outlet === null) this.#giveUp()
    else if (this.#finished) this.forget()
    else this.end('lease_expired')
  }

  /** The program is gone, or never was: what it held is free. What it said is kept for as long as the lease lasts. */
  #settle(): void {
    if (this.#over) return
    this.#over = true
    this.#stdin?.stop()
    this.#init.slot.release(this.#process?.dead)
    if (this.#process !== null) this.#init.report.settled({ cancelled: this.#cause !== null })
  }

  #handlers(): Parameters<typeof startProcess>[1]['handlers'] {
    return {
      onOutput: (stream, data) => {
        if (!this.#outbox.push(stream, data)) this.#process?.pause()
      },
      onWarning: (kind, bytes) => this.#warn(kind, bytes),
    }
  }

  #began(process: RunningProcess): void {
    const { report, requestId, permit } = this.#init
    this.#process = process
    report.started(process)
    this.#outbox.note(execFrame.encode({ type: 'started', request_id: requestId, pid: process.pid }))
    if (permit.caps.timeout_clamped) this.#warn('timeout_clamped', null)
    // It was given up while it was being started.
    if (this.#killed) process.kill()
    else if (this.#cause !== null) process.terminate()
    if (process.stdin !== null) this.#stdin?.attach(process.stdin)
    process.resume()
  }

  /** The peer broke the protocol: its stream ends now, its program as soon as it can. */
  violated(what: string): void {
    this.#components.counters.count('malformed_frames')
    this.#components.log.info({ request_id: this.#init.requestId, what }, 'a peer broke the protocol of a run')
    this.#giveUp()
    this.#detach()
  }

  #warn(kind: WarningKind, bytes: number | null): void {
    this.#init.report.warned(kind, bytes)
    this.#outbox.note(execFrame.encode({ type: 'warning', request_id: this.#init.requestId, kind, message: WARNING_TEXT[kind] }))
  }
}
