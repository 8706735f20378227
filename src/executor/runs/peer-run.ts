import type { Clock } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { TimeSlicer } from '../../base/time-slices.ts'
import type { Uploads } from '../../fs/uploads.ts'
import type { FileRunPermit } from '../../policy/mesh/authorize-file.ts'
import type { Permit, RunCaps } from '../../policy/permit.ts'
import type { Slot } from '../../policy/slots.ts'
import type { ProcessDeps, ProcessHandlers } from '../../process/running-process.ts'
import type { ProgramStart, SpawnFailure } from '../../process/spawn.ts'
import type { RunReporter } from '../../protocol/events/run-reporter.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_APPROVAL_WAIT_MS } from '../../protocol/limits/approvals.ts'
import type { DenialReason, OutputName, RunState, SessionNotice } from '../../protocol/reasons.ts'
import { type ExecFrame, execFrame } from '../../protocol/wire/exec.ts'
import type { Recordings } from '../../transcripts/recordings.ts'
import type { ExecutorServices } from '../services.ts'
import { type EndCause, Execution, type Program, type RunRecorder, type InputSource, reportTo, starterOf } from './execution.ts'
import { FileTask } from './file-task.ts'
import { type Warning, warningFrame } from './frames.ts'
import { PermitRecording } from './run-recording.ts'

/** A program, or a file command that this process does. */
type PeerProgram = Program & ProgramStart

export interface AdmittedRun {
  readonly permit: Permit | FileRunPermit
  readonly report: RunRecorder<PeerProgram, Uint8Array>
  readonly slot: Slot
}

export interface RefusedRun {
  readonly reason: DenialReason
  readonly exit: Uint8Array
}

/** State of a waiting run, as its requester learns it. */
export interface WaitingState extends Pick<Extract<ExecFrame, { type: 'waiting' }>, 'approvals_needed' | 'approvals_given' | 'reason'> {
  /** Monotonic time. */
  readonly expiresAt: number
}

/** A run that needs an approval. */
export interface PendingApproval {
  /** Never rejects for a withdrawal. `notify` is called for each change of the state. `stdin` resolves when all has arrived, or is null. */
  settle(notify: (state: WaitingState) => void, stdin: Promise<Uint8Array> | null): Promise<AdmittedRun | RefusedRun>
  /** Withdraws the request. `settle` resolves soon after. */
  withdraw(cause: EndCause): void
}

export interface ApprovalWaitInit {
  readonly awaited: PendingApproval
  readonly requestId: RequestId
  /** Sends a frame to the requester if it is connected. */
  send(frame: Uint8Array): void
}

/** A run that waits for an approval. It holds no slot, and ending it withdraws the request. */
export class ApprovalWait {
  readonly #clock: Clock
  readonly #init: ApprovalWaitInit
  #state: WaitingState | null = null
  #ended = false
  #withdrawn: EndCause | null = null

  constructor(deps: { readonly clock: Clock }, init: ApprovalWaitInit) {
    this.#clock = deps.clock
    this.#init = init
  }

  async settle(stdin: Promise<Uint8Array> | null = null): Promise<AdmittedRun | RefusedRun> {
    try {
      return await this.#init.awaited.settle((state) => this.#emit(state), stdin)
    } finally {
      this.#ended = true
    }
  }

  /** False if the wait is over or was withdrawn before. */
  withdraw(cause: EndCause): boolean {
    if (this.#ended || this.#withdrawn !== null) return false
    this.#withdrawn = cause
    this.#init.awaited.withdraw(cause)
    return true
  }

  /** Frames for a stream that joins now. */
  frames(): Uint8Array[] {
    if (this.#state === null || this.#ended) return []
    const { expiresAt, ...state } = this.#state
    const left = Math.max(0, Math.round(expiresAt - this.#clock.monotonic()))
    const expires_in_ms = Math.min(left, MAX_APPROVAL_WAIT_MS)
    return [execFrame.encode({ type: 'waiting', request_id: this.#init.requestId, expires_in_ms, ...state })]
  }

  /** Not stored in the outbox, because a later stream receives the state of that time. */
  #emit(state: WaitingState): void {
    if (this.#ended) return
    this.#state = state
    for (const frame of this.frames()) this.#init.send(frame)
  }
}

/** Receives the output, the notes and the Exit of a run. It is its requester's stream, or the files of a detached run. */
export interface PeerRunOutput {
  /** Called before anything else. Throws why output cannot be kept. Then the program must not start. */
  open?(run: Pick<PeerRun, 'resume' | 'outputLost'>): Promise<void>
  /** Sends the encoded frame with the reason why the run waits. */
  waiting(frame: Uint8Array): void
  /** Called when a waiting run was approved. False if that cannot be recorded. Then the program must not start. */
  approved?(): Promise<boolean>
  /** Called when the program runs, with its maximum lifetime. */
  started?(lifetimeMs: number): void
  /** False means to read no more from the program before `PeerRun.resume`. */
  push(stream: OutputName, data: Uint8Array): boolean
  note(frame: Uint8Array): void
  /** Takes the encoded Exit, or null after an internal error. */
  finish(exit: Uint8Array | null): Promise<void> | void
  /** Called when the program is killed. Readers must not delay it. */
  killed?(): void
}

export type PeerRunDeps = Pick<ExecutorServices, 'trees' | 'clock' | 'cleanup' | 'log'> &
  Pick<ProcessDeps, 'frames'> & {
    readonly uploads: Uploads
    readonly recordings: Pick<Recordings, 'begin' | 'ended'>
    /** Divides long work into turns of the event loop. */
    readonly sharing: Pick<TimeSlicer, 'share'>
  }

export interface PeerRunInit {
  readonly requestId: RequestId
  /** A permit, or the approval that the run waits for. */
  readonly admission: AdmittedRun | PendingApproval
  readonly output: PeerRunOutput
  /** Stdin, or the input of a terminal. `whole` resolves when all of it has arrived, null if an approver cannot see it. Null means /dev/null. */
  readonly stdin: (InputSource & { readonly whole: Promise<Uint8Array> | null }) | null
  /** Reports the run to approval clients of this machine. Null without such clients. */
  readonly reporter: RunReporter | null
}

/** A run of another agent, from its permit or approval request until its output has the Exit. */
export class PeerRun {
  readonly #deps: PeerRunDeps
  readonly #init: PeerRunInit
  /** Null means that the run was permitted at once. */
  readonly #wait: ApprovalWait | null
  /** Null until the run may start. */
  #execution: Execution<PeerProgram, Uint8Array> | null = null
  #cause: EndCause | null = null
  #killed = false
  #isRecorded = false
  #isWatchable = false
  #isFollowed = false

  constructor(deps: PeerRunDeps, init: PeerRunInit) {
    this.#deps = deps
    this.#init = init
    const { admission, output, requestId } = init
    const send = (frame: Uint8Array): void => output.waiting(frame)
    this.#wait = 'permit' in admission ? null : new ApprovalWait(deps, { awaited: admission, requestId, send })
  }

  get requestId(): RequestId {
    return this.#init.requestId
  }

  get state(): RunState {
    if (this.#wait !== null && this.#execution === null) return 'waiting_for_approval'
    return this.#cause === null ? 'running' : 'ending'
  }

  /** False for a run without a recording. A waiting run is decided again, so it counts as recorded. */
  get recorded(): boolean {
    return this.#execution === null || this.#isRecorded
  }

  /** Frames for a stream that joins while the run waits. */
  get waitingFrames(): readonly Uint8Array[] {
    return this.#wait?.frames() ?? []
  }

  /** Runs to the end. Never rejects. The slot is free when it settles. Call it once. */
  async execute(): Promise<void> {
    const { output, requestId, reporter } = this.#init
    try {
      await output.finish(await this.#toTheEnd())
    } catch (error) {
      this.#deps.log.error({ request_id: requestId, error: errorText(error) }, 'a run failed with an internal error')
      reporter?.lost()
      await output.finish(null)
    }
  }

  resume(): void {
    this.#execution?.resume()
  }

  /** Some output was lost, so the hashes of the Exit do not match the stored output. */
  outputLost(): void {
    this.#execution?.warn({ kind: 'output_lost', amount: null })
  }

  /** Ends the program or withdraws the approval request, then warns. Only the first cause counts. */
  end(cause: EndCause): void {
    if (this.#cause !== null) return
    this.#cause = cause
    if (this.#execution !== null) return this.#execution.end(cause)
    if (this.#wait?.withdraw(cause) !== true) return
    this.#init.stdin?.stop()
    this.#warn({ kind: cause, amount: null }, null)
  }

  /** Notifies the requester once that an operator of this machine looks on, at the start of the command if it waits for an approval. */
  watched(): void {
    if (this.#isFollowed) return
    this.#isFollowed = true
    if (this.#isWatchable) this.#execution?.warn({ kind: 'session_watched', amount: null })
  }

  kill(): void {
    this.#killed = true
    this.#execution?.kill()
    this.#init.output.killed?.()
  }

  /** Returns the encoded Exit. */
  async #toTheEnd(): Promise<Uint8Array> {
    const { admission, output, stdin, reporter } = this.#init
    try {
      if (output.open !== undefined) await output.open(this)
    } catch (error) {
      if ('permit' in admission) return this.#unkept(admission, `its output cannot be kept: ${errorText(error)}`)
      this.#wait!.withdraw('cancelled')
    }
    const settled = 'permit' in admission ? admission : await this.#wait!.settle(stdin?.whole ?? null)
    if ('exit' in settled) {
      stdin?.stop()
      reporter?.denied(settled.reason)
      return settled.exit
    }
    // Until then the stored record of a waiting run says that it never began.
    if (this.#wait !== null && (await output.approved?.()) === false) return this.#unkept(settled, 'its record cannot be written')
    this.#execution = this.#executionOf(settled)
    const exit = this.#execution.run()
    // The run was ended or killed while it waited. The audit log must have the request before that warning.
    if (this.#cause !== null) this.#execution.end(this.#cause)
    if (this.#killed) this.#execution.kill()
    return exit
  }

  async #unkept({ slot, report }: AdmittedRun, detail: string): Promise<Uint8Array> {
    slot.release()
    return reportTo(this.#init.reporter, report).denied('spawn_failed', detail)
  }

  #executionOf({ permit, report, slot }: AdmittedRun): Execution<PeerProgram, Uint8Array> {
    const { requestId, output, stdin, reporter } = this.#init
    const { caps } = permit
    const recording = 'command' in permit ? null : this.#recordingOf(permit)
    this.#isRecorded = recording !== null
    this.#isWatchable = !('command' in permit) && permit.watch === true
    return new Execution({
      start: 'command' in permit ? this.#fileTaskOf(permit) : starterOf(this.#deps, permit, { stdin: stdin !== null }),
      starting: null,
      stdin,
      hangsUp: 'terminal' in permit && permit.terminal !== null,
      // The output of a terminal is private, unless the requester knows that operators may look on.
      report: reportTo(reporter, report, { output: 'command' in permit || permit.terminal === null || permit.watch === true }),
      recording,
      notices: 'command' in permit ? [] : noticesOf(permit, this.#isFollowed),
      output: {
        push: (stream, data) => output.push(stream, data),
        started: ({ pid }) => {
          this.#record({ type: 'started', request_id: requestId, pid })
          output.started?.(caps.timeout_ms)
        },
        warning: (warning) => this.#warn(warning, caps),
      },
      slot,
      timeoutClamped: caps.timeout_clamped,
    })
  }

  #recordingOf(permit: Permit): PermitRecording | null {
    const { principal } = permit
    if (permit.record !== true || principal.kind !== 'mesh') return null
    const { agent_id, machine_id } = principal
    return new PermitRecording(this.#deps, {
      key: { agent_id, machine_id, request_id: this.requestId },
      permit,
      onRoom: () => this.#execution?.recordingHasRoom(),
      onFailed: () => this.#execution?.end('recording_failed'),
    })
  }

  #fileTaskOf(permit: FileRunPermit) {
    const stdin = this.#init.stdin !== null
    return async (handlers: ProcessHandlers): Promise<{ kind: 'started'; process: PeerProgram } | SpawnFailure> => ({
      kind: 'started',
      process: new FileTask({ ...this.#deps, handlers }, { permit, stdin }),
    })
  }

  #warn(warning: Warning, caps: RunCaps | null): void {
    this.#record(warningFrame(this.requestId, warning, caps))
  }

  #record(frame: ExecFrame): void {
    this.#init.output.note(execFrame.encode(frame))
  }
}

/** Notices about other readers of the output. */
const noticesOf = ({ record = false, watch = false }: Permit, isFollowed: boolean): readonly SessionNotice[] => [
  ...(record ? ['session_recorded' as const] : []),
  ...(watch ? ['session_watchable' as const] : []),
  ...(watch && isFollowed ? ['session_watched' as const] : []),
]
