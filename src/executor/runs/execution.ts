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

/** Why a run was ended before its program was done. Each is also a warning. */
export type EndCause = Extract<
  WarningKind,
  'cancelled' | 'lease_expired' | 'peer_disconnected' | 'stdin_mismatch' | 'daemon_stopping' | 'access_revoked' | 'ended_by_operator'
>

/** What a run runs: a process of this host, or a command that another agent runs. */
export interface Program extends Pick<RunningProcess, 'signal' | 'resize' | 'hangUp' | 'terminate' | 'kill' | 'pause' | 'resume'> {
  readonly ended: Promise<ProcessEnd>
  readonly stdin: StdinSink | null
  /** See `RunningProcess.dead`. */
  readonly dead: Promise<unknown> | null
}

/** What is told of one run, in the right places and the right order: journal, counters, log, and its last frame. */
export interface RunRecorder<Started, Last> {
  /** True when the line is on disk, so that the program may be started. */
  requested(): Promise<boolean>
  /** It will run, or could have: nothing stands in its way any more. */
  allowed(): void
  started(program: Started): void
  /** To either stream. */
  wrote?(data: Uint8Array): void
  warned(warning: Warning): void
  /**
   * Answers the last frame, when the line is on disk as far as the disk allows. `detail` stays on this host. `ran`: what
   * was killed before anybody heard of it.
   */
  denied(reason: DenialReason, detail: string | null, ran?: ProgramStart | null): Promise<Last>
  /** Answers the last frame, when the line is on disk as far as the disk allows: the outcome is told in any case. */
  ended(facts: ExitFacts): Promise<Last>
  /** Once, for each `started`: what it held is free. */
  settled(how: { readonly cancelled: boolean }): void
}

/** What is told, to the story as well. */
export const reportTo = <S, L>(story: RunReporter | null, report: RunRecorder<S, L>): RunRecorder<S, L> =>
  story === null
    ? report
    : {
        ...report,
        started: (program) => {
          story.started()
          report.started(program)
        },
        wrote: (data) => story.output(data),
        denied: async (reason, detail, ran) => {
          story.denied(reason)
          return report.denied(reason, detail, ran)
        },
        ended: async (facts) => {
          story.finished({ ...facts, incomplete: false })
          return report.ended(facts)
        },
      }

/** Where stdin comes from. */
interface StdinSource {
  attach(sink: StdinSink): void
  stop(): void
}

/** Where output and warnings go. */
interface ExecutionOutput<P> {
  /** False: the program is paused until `Execution.resume`. */
  push(stream: 'stdout' | 'stderr', data: Uint8Array): boolean
  started(program: P): void
  warning(warning: Warning): void
}

export interface ExecutionInit<P extends Program, Last> {
  /** Answers the program, whose output is not read before its first `resume`. */
  start(handlers: ProcessHandlers): Promise<{ readonly kind: 'started'; readonly process: P } | SpawnFailure>
  /** Ends what `start` still waits for. Null: a process of this host, which cannot be ended before it is there. */
  readonly starting: Pick<Program, 'terminate' | 'kill'> | null
  /** Null: the program reads /dev/null. */
  readonly stdin: StdinSource | null
  readonly report: RunRecorder<P, Last>
  readonly output: ExecutionOutput<P>
  readonly slot: Slot
  readonly timeoutClamped: boolean
}

/** Starts what was permitted, as the `start` of an `Execution`. */
export const starterOf =
  (deps: Omit<ProcessDeps, 'handlers'>, permit: Permit, options: { readonly stdin: boolean }) =>
  async (handlers: ProcessHandlers): ReturnType<typeof startProcess> =>
    startProcess(permit, { ...deps, handlers }, options)

/** One permitted program, from its line in the journal to the line of its end, whoever asked for it. */
export class Execution<P extends Program, Last> {
  readonly #init: ExecutionInit<P, Last>
  #process: P | null = null
  #cause: EndCause | null = null
  #killed = false
  /** The program is gone, or never was. */
  #ended = false

  constructor(init: ExecutionInit<P, Last>) {
    this.#init = init
  }

  /** Runs to the end and answers what the report makes of it. The slot is free when it settles. Call it once. */
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

  /** The program while it runs, else null. */
  get program(): P | null {
    return this.#ended ? null : this.#process
  }

  /** Something asked it to end. */
  get ending(): boolean {
    return this.#cause !== null
  }

  /** There is room for more output. */
  resume(): void {
    this.#process?.resume()
  }

  /** Ends the program, then warns. Only the first cause counts. */
  end(cause: EndCause): void {
    if (this.#ended || this.#cause !== null) return
    this.#cause = cause
    const { starting } = this.#init
    const ended = this.#process ?? starting
    ended?.terminate()
    // A target sends the warning itself.
    if (starting === null) this.warn({ kind: cause, amount: null })
  }

  /** Reports a warning to the journal and to the requester. */
  warn(warning: Warning): void {
    this.#init.report.warned(warning)
    this.#init.output.warning(warning)
  }

  /** SIGKILL. */
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
    // The run was ended while its program was being started.
    if (this.#killed) process.kill()
    else if (this.#cause !== null) process.terminate()
    if (process.stdin !== null) stdin?.attach(process.stdin)
    process.resume()
  }

  /** Stops stdin and frees the slot; once. */
  #settle(): void {
    if (this.#ended) return
    this.#ended = true
    this.#init.stdin?.stop()
    this.#init.slot.release(this.#process?.dead)
    if (this.#process !== null) this.#init.report.settled({ cancelled: this.#cause !== null })
  }
}
