import type { Permit } from '../../policy/permit.ts'
import type { Slot } from '../../policy/slots.ts'
import {
  type ProcessDeps,
  type ProcessEnd,
  type ProcessHandlers,
  type RunningProcess,
  startProcess,
} from '../../process/running-process.ts'
import type { ProgramStart, SpawnFailure } from '../../process/spawn.ts'
import type { StdinSink } from '../../process/streams.ts'
import type { RunReporter } from '../../protocol/events/run-reporter.ts'
import type { DenialReason, WarningKind } from '../../protocol/reasons.ts'
import type { Warning } from './frames.ts'
import { type ExitFacts, factsOf, neverRan } from './run-facts.ts'

/** Why a run was ended early. Each is also a warning. */
export type EndCause = Extract<
  WarningKind,
  'cancelled' | 'lease_expired' | 'peer_disconnected' | 'stdin_mismatch' | 'daemon_stopping' | 'access_revoked' | 'ended_by_operator'
>

/** A process of this machine, or a command that another agent runs. */
export interface Program extends Pick<RunningProcess, 'signal' | 'resize' | 'hangUp' | 'terminate' | 'kill' | 'pause' | 'resume'> {
  readonly ended: Promise<ProcessEnd>
  readonly stdin: StdinSink | null
  /** See `RunningProcess.dead`. */
  readonly dead: Promise<unknown> | null
}

/** Records one run in audit log, counters and log in the required order, and builds its last frame. */
export interface RunRecorder<Started, Last> {
  /** True when the line is on disk, so that the program may start. */
  requested(): Promise<boolean>
  /** Called when all obstacles to the run are gone. */
  allowed(): void
  started(program: Started): void
  /** Output of either stream. */
  wrote?(data: Uint8Array): void
  warned(warning: Warning): void
  /**
   * Resolves to the last frame when the line is on disk, as far as the disk allows. `detail` stays on this machine. `ran` is a program that
   * was killed before it was reported.
   */
  denied(reason: DenialReason, detail: string | null, ran?: ProgramStart | null): Promise<Last>
  /** Resolves to the last frame when the line is on disk. If the disk fails, the outcome is still reported. */
  ended(facts: ExitFacts): Promise<Last>
  /** Called once for each `started` when its resources are free. */
  settled(how: { readonly cancelled: boolean }): void
}

/** Also reports the run to `reporter`. */
export const reportTo = <S, L>(reporter: RunReporter | null, report: RunRecorder<S, L>): RunRecorder<S, L> =>
  reporter === null
    ? report
    : {
        ...report,
        started: (program) => {
          reporter.started()
          report.started(program)
        },
        wrote: (data) => reporter.output(data),
        denied: async (reason, detail, ran) => {
          reporter.denied(reason)
          return report.denied(reason, detail, ran)
        },
        ended: async (facts) => {
          reporter.finished({ ...facts, incomplete: false })
          return report.ended(facts)
        },
      }

export interface InputSource {
  /** The program has started. */
  attach(sink: StdinSink, program: Pick<Program, 'resize'>): void
  stop(): void
}

interface ExecutionOutput<P> {
  /** False means that the program is paused until `Execution.resume`. */
  push(stream: 'stdout' | 'stderr', data: Uint8Array): boolean
  started(program: P): void
  warning(warning: Warning): void
}

export interface ExecutionInit<P extends Program, Last> {
  /** Returns the program, whose output is not read before its first `resume`. */
  start(handlers: ProcessHandlers): Promise<{ readonly kind: 'started'; readonly process: P } | SpawnFailure>
  /** Ends a pending `start`. Null for a process of this machine, which cannot be ended before it exists. */
  readonly starting: Pick<Program, 'terminate' | 'kill'> | null
  /** Null means the program reads /dev/null. */
  readonly stdin: InputSource | null
  /** Ends the program by SIGHUP in place of SIGTERM, like the closing of a terminal. A shell of a person ignores SIGTERM. Absent means false. */
  readonly hangsUp?: boolean
  readonly report: RunRecorder<P, Last>
  readonly output: ExecutionOutput<P>
  readonly slot: Slot
  readonly timeoutClamped: boolean
}

/** Returns the `start` of an `Execution` for a permit. */
export const starterOf =
  (deps: Omit<ProcessDeps, 'handlers'>, permit: Permit, options: { readonly stdin: boolean }) =>
  async (handlers: ProcessHandlers): ReturnType<typeof startProcess> =>
    startProcess(permit, { ...deps, handlers }, options)

/** One permitted program, from its `request` line in the audit log to its `exit` line. */
export class Execution<P extends Program, Last> {
  readonly #init: ExecutionInit<P, Last>
  #process: P | null = null
  #cause: EndCause | null = null
  #killed = false
  /** The program has ended or never started. */
  #ended = false

  constructor(init: ExecutionInit<P, Last>) {
    this.#init = init
  }

  /** Runs to the end and returns the result of the recorder. The slot is free when it resolves. Call it once. */
  async run(): Promise<Last> {
    try {
      return await this.#run()
    } catch (error) {
      this.#process?.kill()
      await this.#process?.ended.catch(() => undefined)
      throw error
    } finally {
      this.#settle()
    }
  }

  get program(): P | null {
    return this.#ended ? null : this.#process
  }

  get ending(): boolean {
    return this.#cause !== null
  }

  resume(): void {
    this.#process?.resume()
  }

  /** Ends the program, then warns. Only the first cause counts. */
  end(cause: EndCause): void {
    if (this.#ended || this.#cause !== null) return
    this.#cause = cause
    const { starting } = this.#init
    if (this.#process !== null) this.#askToEnd(this.#process)
    else starting?.terminate()
    // A target sends the warning itself.
    if (starting === null) this.warn({ kind: cause, amount: null })
  }

  #askToEnd(process: P): void {
    if (this.#init.hangsUp === true) process.hangUp()
    else process.terminate()
  }

  /** Reports a warning to the audit log and to the requester. */
  warn(warning: Warning): void {
    this.#init.report.warned(warning)
    this.#init.output.warning(warning)
  }

  /** Sends SIGKILL. */
  kill(): void {
    this.#killed = true
    const killed = this.#process ?? this.#init.starting
    killed?.kill()
  }

  async #run(): Promise<Last> {
    const { report, start } = this.#init
    if (!(await report.requested())) return report.denied('audit_unavailable', null)
    if (this.#cause !== null) {
      report.allowed()
      return report.ended(neverRan(null))
    }
    const started = await start(this.#handlers())
    if (started.kind === 'spawn_failed') return report.denied('spawn_failed', started.detail, started.ran)
    report.allowed()
    this.#began(started.process)
    const end = await started.process.ended
    this.#settle()
    return report.ended(factsOf(end))
  }

  #handlers(): ProcessHandlers {
    return {
      onOutput: (stream, data) => {
        this.#init.report.wrote?.(data)
        if (!this.#init.output.push(stream, data)) this.#process?.pause()
      },
      onWarning: (kind, amount) => this.warn({ kind, amount }),
    }
  }

  #began(process: P): void {
    const { report, output, stdin, timeoutClamped } = this.#init
    this.#process = process
    report.started(process)
    output.started(process)
    if (timeoutClamped) this.warn({ kind: 'timeout_clamped', amount: null })
    // The run was ended while its program started.
    if (this.#killed) process.kill()
    else if (this.#cause !== null) this.#askToEnd(process)
    if (process.stdin !== null) stdin?.attach(process.stdin, process)
    process.resume()
  }

  /** Stops stdin and frees the slot, once. */
  #settle(): void {
    if (this.#ended) return
    this.#ended = true
    this.#init.stdin?.stop()
    this.#init.slot.release(this.#process?.dead)
    if (this.#process !== null) this.#init.report.settled({ cancelled: this.#cause !== null })
  }
}
