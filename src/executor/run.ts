import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { ExecCounters } from '../diagnostics/exec-counters.ts'
import type { Permit } from '../policy/permit.ts'
import type { Slot } from '../policy/slots.ts'
import type { Cells } from '../process/cells.ts'
import type { Guardian } from '../process/guardian.ts'
import { startProcess, type ProcessEnd, type RunningProcess } from '../process/running-process.ts'
import { execFrame, type ExecFrame, type ExecRequest } from '../protocol/exec.ts'
import type { WarningKind } from '../protocol/reasons.ts'
import { neverRan, type ExitFacts, type RunSubject } from './exit-writer.ts'
import { Lease } from './lease.ts'
import { Outbox, type UnackedTotal } from './outbox.ts'
import type { Reports } from './reports.ts'
import type { RunOutlet } from './run-outlet.ts'
import { StdinFeed } from './stdin-feed.ts'
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
}

const factsOf = (end: ProcessEnd): ExitFacts => ({
  code: end.code,
  signal: end.signal,
  duration_ms: end.duration_ms,
  stdout_bytes_total: end.stdout.bytes_total,
  stderr_bytes_total: end.stderr.bytes_total,
  stdout_sha256: end.stdout.sha256,
  stderr_sha256: end.stderr.sha256,
  truncated: end.truncated,
  denial_reason: null,
})

/** One permitted request, from its line in the journal to its Exit. */
export class Run {
  readonly #components: RunComponents
  readonly #init: RunInit
  readonly #outbox: Outbox
  readonly #lease: Lease
  readonly #stdin: StdinFeed | null
  #process: RunningProcess | null = null
  #cause: EndCause | null = null
  #over = false

  constructor(components: RunComponents, init: RunInit) {
    this.#components = components
    this.#init = init
    const { request, outlet } = init
    const { clock, total } = components
    const requestId = request.request_id
    this.#outbox = new Outbox({ outlet, total }, { requestId, onRoom: () => this.#process?.resume() })
    this.#lease = new Lease({ clock }, { onExpired: () => this.end('lease_expired') })
    const onAck = (stdin: number): void => this.#send({ type: 'ack', request_id: requestId, stdin, stdout: 0, stderr: 0 })
    this.#stdin = request.stdin && new StdinFeed({ clock }, { ...request.stdin, onAck, onMismatch: () => this.end('stdin_mismatch') })
  }

  /** Runs to the end; never rejects. The slot is free and the outlet closed when it settles. */
  async execute(): Promise<void> {
    const { outlet, request } = this.#init
    try {
      outlet.send(await this.#go())
    } catch (error) {
      this.#components.log.error({ request_id: request.request_id, error: errorText(error) }, 'a run failed inside')
      this.#process?.kill()
      await this.#process?.ended.catch(() => undefined)
    } finally {
      this.#settle()
      this.#outbox.close()
      outlet.close()
    }
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

  /** The program is gone, or never was: what it held is free. */
  #settle(): void {
    if (this.#over) return
    this.#over = true
    this.#lease.stop()
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
    this.#send({ type: 'started', request_id: request.request_id, pid: process.pid })
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
    this.end('peer_disconnected')
    this.#init.outlet.close()
  }

  #warn(kind: WarningKind, bytes: number | null): void {
    this.#components.reports.warned(this.#init.subject, kind, bytes)
    this.#send({ type: 'warning', request_id: this.#init.request.request_id, kind, message: WARNING_TEXT[kind] })
  }

  #send(frame: ExecFrame): void {
    this.#init.outlet.send(execFrame.encode(frame))
  }
}
