import type { TerminalSize } from '../../executor-api/local.ts'
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
import type { DenialReason, OutputName, SessionNotice, WarningKind } from '../../protocol/reasons.ts'
import type { RecordingEnd } from '../../transcripts/recording.ts'
import type { Warning } from './frames.ts'
import { type ExitFacts, factsOf, neverRan } from './run-facts.ts'

/** Why a run was ended early. Each is also a warning. */
export type EndCause = Extract<
  WarningKind,
  | 'cancelled'
  | 'lease_expired'
  | 'peer_disconnected'
  | 'stdin_mismatch'
  | 'daemon_stopping'
  | 'access_revoked'
  | 'ended_by_operator'
  | 'recording_failed'
>

/** Takes the input of a program. */
export type InputSink = Pick<StdinSink, 'write' | 'end'>

/** A process of this machine, or a command that another agent runs. */
export interface Program extends Pick<RunningProcess, 'signal' | 'resize' | 'hangUp' | 'terminate' | 'kill' | 'pause' | 'resume'> {
  readonly ended: Promise<ProcessEnd>
  readonly stdin: InputSink | null
  /** See `RunningProcess.dead`. */
  readonly dead: Promise<unknown> | null
}

/** Records one run in audit log, counters and log in the required order, and builds its last frame. */
export interface RunRecorder<Started, Last> {
  /** True when the line is on disk, so that the program may start. `recording` is the name of its recording. */
  requested(recording?: string): Promise<boolean>
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
  ended(facts: ExitFacts, recording?: RecordingEnd): Promise<Last>
  /** Called once for each `started` when its resources are free. */
  settled(how: { readonly cancelled: boolean }): void
}

/** Also reports the run to `reporter`, with its output or only its beginning and end. */
export const reportTo = <S, L>(
  reporter: RunReporter | null,
  report: RunRecorder<S, L>,
  { output }: { readonly output: boolean } = { output: true },
): RunRecorder<S, L> =>
  reporter === null
    ? report
    : {
        ...report,
        started: (program) => {
          reporter.started()
          report.started(program)
        },
        wrote: (data) => {
          if (output) reporter.output(data)
        },
        denied: async (reason, detail, ran) => {
          reporter.denied(reason)
          return report.denied(reason, detail, ran)
        },
        ended: async (facts, recording) => {
          reporter.finished({ ...facts, incomplete: false })
          return report.ended(facts, recording)
        },
      }

/** Keeps what a program shows. Without it, the program must not run. */
export interface RunRecording {
  /** Returns why it cannot be kept, or null. */
  begin(): Promise<string | null>
  /** Null before `begin`. */
  readonly name: string | null
  /** False means that the program is paused until `Execution.recordingHasRoom`. */
  output(stream: OutputName, data: Uint8Array): boolean
  resized(size: TerminalSize): void
  finish(): Promise<RecordingEnd>
  /** The program did not run. */
  discard(): Promise<void>
}

export interface InputSource {
  /** The program has started. */
  attach(sink: InputSink, program: Pick<Program, 'resize'>): void
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
  /** Null or absent if no recording is kept. */
  readonly recording?: RunRecording | null
  /** Told to the requester before the program starts. */
  readonly notices?: readonly SessionNotice[]
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
  /** The parts that have no room for output. */
  readonly #full = new Set<'output' | 'recording'>()

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
      await this.#init.recording?.finish().catch(() => undefined)
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

  /** The requester has room again. */
  resume(): void {
    this.#hasRoom('output')
  }

  recordingHasRoom(): void {
    this.#hasRoom('recording')
  }

  #note(part: 'output' | 'recording', hasRoom: boolean): void {
    if (hasRoom) this.#full.delete(part)
    else this.#full.add(part)
  }

  #hasRoom(part: 'output' | 'recording'): void {
    this.#note(part, true)
    if (this.#full.size === 0) this.#process?.resume()
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
    const { report, start, recording = null, notices = [], output } = this.#init
    // Without a recording, the request is logged in this turn.
    const problem = recording === null ? null : await recording.begin()
    if (problem !== null) return report.denied('recording_unavailable', problem)
    if (!(await report.requested(recording?.name ?? undefined))) {
      await recording?.discard()
      return report.denied('audit_unavailable', null)
    }
    if (this.#cause !== null) {
      report.allowed()
      return report.ended(neverRan(null), await recording?.finish())
    }
    for (const kind of notices) output.warning({ kind, amount: null })
    const started = await start(this.#handlers())
    if (started.kind === 'spawn_failed') {
      await recording?.discard()
      return report.denied('spawn_failed', started.detail, started.ran)
    }
    report.allowed()
    this.#began(started.process)
    const end = await started.process.ended
    this.#settle()
    const kept = await recording?.finish()
    // The last output could not be written after the end of the program.
    if (kept?.complete === false && this.#cause !== 'recording_failed') this.warn({ kind: 'recording_failed', amount: null })
    return report.ended(factsOf(end), kept)
  }

  #handlers(): ProcessHandlers {
    return {
      onOutput: (stream, data) => {
        const { report, recording = null, output } = this.#init
        report.wrote?.(data)
        this.#note('recording', recording?.output(stream, data) ?? true)
        this.#note('output', output.push(stream, data))
        if (this.#full.size > 0) this.#process?.pause()
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
    if (process.stdin !== null) stdin?.attach(process.stdin, this.#resizable(process))
    process.resume()
  }

  #resizable(process: P): Pick<Program, 'resize'> {
    const { recording = null } = this.#init
    if (recording === null) return process
    return {
      resize: (size) => {
        process.resize(size)
        recording.resized(size)
      },
    }
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
