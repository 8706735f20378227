import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { ExecCounters } from '../diagnostics/exec-counters.ts'
import type { Permit } from '../policy/permit.ts'
import type { Slot } from '../policy/slots.ts'
import type { Cells } from '../process/cells.ts'
import type { Guardian } from '../process/guardian.ts'
import { startProcess, type RunningProcess } from '../process/running-process.ts'
import { execFrame, type ExecFrame, type ExecRequest } from '../protocol/exec.ts'
import { RESUME_BURST, RESUMES_PER_SECOND } from '../protocol/resume-limits.ts'
import type { WarningKind } from '../protocol/reasons.ts'
import { factsOf, neverRan, type RunSubject } from './exit-writer.ts'
import { Lease } from './lease.ts'
import { Outbox, type Position, type UnackedTotal } from './outbox.ts'
import type { Reports } from './reports.ts'
import type { RunOutlet } from './run-outlet.ts'
import { StdinFeed } from './stdin-feed.ts'
import { TokenBucket } from './token-bucket.ts'
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
  readonly reports: Reports
  readonly total: UnackedTotal
}

export interface RunInit {
  readonly subject: RunSubject
  readonly request: ExecRequest
  readonly permit: Permit
  readonly slot: Slot
  readonly outlet: RunOutlet
  /** False for our own runs, which have no stream to lose. */
  readonly resumable: boolean
  /** Once: the run is over, and nobody can ask for anything of it any more. */
  onForgotten(): void
}

const NO_STDIN = { received: 0, acked: 0 }

/**
 * One permitted request, from its line in the journal to the moment when its requester has the Exit. It
 * outlives the stream that it came on, for as long as the lease lasts.
 */
export class Run {
  readonly #components: RunComponents
  readonly #init: RunInit
  readonly #outbox: Outbox
  readonly #lease: Lease
  readonly #stdin: StdinFeed | null
  readonly #resumes: TokenBucket
  /** The requester's present stream; null while there is none. */
  #outlet: RunOutlet | null
  #process: RunningProcess | null = null
  #cause: EndCause | null = null
  /** The program is gone, or never was. */
  #over = false
  /** The Exit is written. */
  #finished = false
  #forgotten = false

  constructor(components: RunComponents, init: RunInit) {
    this.#components = components
    this.#init = init
    const { request, outlet } = init
    const { clock, total } = components
    const requestId = request.request_id
    this.#outlet = outlet
    this.#outbox = new Outbox({ total }, { requestId, onRoom: () => this.#process?.resume() })
    this.#outbox.attach(outlet, { stdout: 0, stderr: 0 })
    this.#lease = new Lease({ clock }, { onExpired: () => this.#expired() })
    this.#resumes = new TokenBucket({ clock }, { burst: RESUME_BURST, perSecond: RESUMES_PER_SECOND })
    const onAck = (stdin: number): void =>
      this.#outlet?.send(execFrame.encode({ type: 'ack', request_id: requestId, stdin, stdout: 0, stderr: 0 }))
    this.#stdin = request.stdin && new StdinFeed({ clock }, { ...request.stdin, onAck, onMismatch: () => this.end('stdin_mismatch') })
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
      this.#components.log.error({ request_id: this.#init.request.request_id, error: errorText(error) }, 'a run failed inside')
      this.#process?.kill()
      await this.#process?.ended.catch(() => undefined)
    } finally {
      this.#settle()
      if (!this.#finished || !this.#init.resumable || this.#outbox.closed) this.forget()
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
    this.#lease.renew()
    return true
  }

  /** Lets go of what was kept: what is still to be said is said now, to whoever is there. */
  forget(): void {
    if (this.#forgotten) return
    this.#forgotten = true
    this.#lease.stop()
    this.#outbox.flush()
    this.#outbox.close()
    this.#detach()
    this.#init.onForgotten()
  }

  /** A later frame of the peer on this run's stream. */
  receive(bytes: Uint8Array): void {
    try {
      this.#lease.renew()
      this.#handle(execFrame.decode(bytes))
    } catch (error) {
      this.violated(errorText(error))
    }
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
    this.#process?.kill()
    this.#outbox.close()
  }

  /** The last frame. */
  async #go(): Promise<Uint8Array> {
    const { cells, counters, reports, guardian, clock } = this.#components
    const { subject, request, permit } = this.#init
    if (!(await reports.requested(subject, permit, request.stdin?.len ?? 0))) return reports.denied(subject, 'audit_unavailable', null)
    if (this.#cause !== null) {
      counters.count('requests_allowed')
      return reports.ended(subject, neverRan(null))
    }
    const start = await startProcess(permit, { cells, clock, guardian, handlers: this.#handlers() }, { stdin: request.stdin !== null })
    if (start.kind === 'spawn_failed') return reports.denied(subject, 'spawn_failed', start.detail)
    counters.count('requests_allowed')
    this.#began(start.process)
    const end = await start.process.ended
    this.#settle()
    return reports.ended(subject, factsOf(end))
  }

  /** How far stdin has come, and how much of it was taken: what a requester needs to go on. */
  #greeting(): Uint8Array[] {
    const { request_id } = this.#init.request
    const { received, acked } = this.#stdin ?? NO_STDIN
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
    this.#init.slot.release()
    const { key } = this.#init.subject
    if (this.#process !== null) this.#components.counters.sessionEnded(key.agent_id, { cancelled: this.#cause !== null })
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
    const { subject, request, permit } = this.#init
    this.#process = process
    this.#components.reports.started(subject, process)
    this.#outbox.note(execFrame.encode({ type: 'started', request_id: request.request_id, pid: process.pid }))
    if (permit.caps.timeout_clamped) this.#warn('timeout_clamped', null)
    // It was given up while it was being started.
    if (this.#cause !== null) process.terminate()
    if (process.stdin !== null) this.#stdin?.attach(process.stdin)
    process.resume()
  }

  #handle(frame: ExecFrame): void {
    if (frame.type === 'request' || frame.type === 'exit') return this.violated(`a second ${frame.type}`)
    if (frame.request_id !== this.#init.request.request_id) {
      // Another run's frame on this run's stream touches neither.
      this.#components.counters.count('malformed_frames')
      return
    }
    switch (frame.type) {
      case 'lease_renew':
        return
      case 'cancel':
        return this.end('cancelled')
      case 'ack':
        return this.#outbox.ack(frame)
      case 'stdin':
        if (this.#stdin === null) return this.violated('stdin that was not announced')
        return this.#stdin.accept(frame)
      default:
        return this.violated(`${frame.type} from a requester`)
    }
  }

  /** The peer broke the protocol: its stream ends now, its program as soon as it can. */
  violated(what: string): void {
    this.#components.counters.count('malformed_frames')
    this.#components.log.info({ request_id: this.#init.request.request_id, what }, 'a peer broke the protocol of a run')
    this.#giveUp()
    this.#detach()
  }

  #warn(kind: WarningKind, bytes: number | null): void {
    this.#components.reports.warned(this.#init.subject, kind, bytes)
    const { request_id } = this.#init.request
    this.#outbox.note(execFrame.encode({ type: 'warning', request_id, kind, message: WARNING_TEXT[kind] }))
  }
}
