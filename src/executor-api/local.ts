import type { AppError } from '../base/errors.ts'
import type { ClampedPreferenceJson, RanOnJson, JournalledFacts, ExecPreference, ToolFacts } from '../protocol/api/exec-target.ts'
import type { CommandLookup, RulesJson } from '../protocol/api/rules.ts'
import type { LifecycleFacts } from '../protocol/events/lifecycle.ts'
import type { RequestId } from '../protocol/ids.ts'
import type { DenialReason, LocalInterface, SessionNotice, WarningKind } from '../protocol/reasons.ts'
import type { Capability, LimitName } from '../protocol/rexd/fields.ts'
import type { SessionGrant } from '../protocol/rexd/results.ts'
import type { RecordedOutcome } from '../protocol/tool-record.ts'

// Requests of an interface of this machine to the executor in the same process. This file contains only types, so an interface cannot
// depend on other parts of the executor.

export interface SessionOpening {
  readonly door: LocalInterface
  readonly client_name: string
  /** Agent of the mesh on which commands run, or null for this machine. */
  readonly target: string | null
  /** Null for all that are configured. The same holds for `capabilities`. */
  readonly roots: readonly string[] | null
  readonly capabilities: readonly string[] | null
  /** Capabilities that the interface supports. */
  readonly available: readonly Capability[]
  /** Limits that replace the server's. */
  readonly limits: Readonly<Partial<Record<LimitName, number | undefined>>>
  /** Receives the events of this session's runs. Absent without a listener. It must not throw. */
  readonly told?: (facts: LifecycleFacts) => void
}

interface OfFile {
  readonly session: string
  readonly path: string
}
export type FileCall =
  | (OfFile & { readonly method: 'fs.read'; readonly offset: number; readonly length: number | null })
  | (OfFile & {
      readonly method: 'fs.write'
      readonly mode: 'create' | 'replace' | 'append'
      readonly mkdir_parents: boolean
      readonly atomic: boolean
      readonly expected_mtime: string | null
      readonly data: Uint8Array
    })
  | (OfFile & { readonly method: 'fs.list'; readonly recursive: boolean; readonly max_entries: number | null })
  | (OfFile & { readonly method: 'fs.glob'; readonly pattern: string; readonly max_matches: number | null })
  | (OfFile & { readonly method: 'fs.stat' })
  | (OfFile & {
      readonly method: 'fs.edit'
      readonly old_string: Uint8Array
      readonly new_string: Uint8Array
      readonly replace_all: boolean
      readonly expected_mtime: string | null
    })
  /** `path` is the base directory of relative paths in the patch. */
  | (OfFile & { readonly method: 'fs.patch'; readonly patch_text: Uint8Array })

/** The result object without its content, and the content. */
export interface FileAnswer {
  readonly result: object
  readonly data: Uint8Array
}

export interface TerminalSize {
  readonly cols: number
  readonly rows: number
}

/** With `raw`, output is not changed, and stdin is /dev/null or a pipe instead of the terminal. */
export type Terminal = TerminalSize & { readonly raw?: boolean }

/** How a run of another server ended, from the audit log. That server still runs it (`goes_on`), or the log does not say (`unknown`). */
export type JournalledEnd =
  | { readonly kind: 'goes_on' | 'unknown' }
  | { readonly kind: 'refused'; readonly error: AppError }
  | { readonly kind: 'outcome'; readonly outcome: LocalOutcome }

/** A run that another server started with the same key. */
export type JournalledRunHandle = JournalledFacts & { readonly end: JournalledEnd }

export interface LocalRunRequest {
  readonly session: string
  /** Absent if no tool called. */
  readonly tool?: ToolFacts
  readonly argv: readonly string[]
  /** `argv` is `/bin/sh -c TEXT`, because the client asked for a shell. */
  readonly shell: boolean
  readonly cwd: string | null
  readonly env: Readonly<Record<string, string>>
  /** `env` is the whole environment, except TERM. Otherwise it is added to that of the policy. */
  readonly clear_env?: boolean
  /** Given to the program at once. If `input` is true, more follows by `LocalRun.input`. */
  readonly stdin: Uint8Array
  /** Stdin is a pipe. Otherwise stdin without bytes is /dev/null. */
  readonly input: boolean
  readonly timeout_ms: number | null
  readonly max_output_bytes: number | null
  readonly fail_on_limit: boolean
  readonly detach: boolean
  /** Starts a detached run of the target with this ID, or attaches to the existing one. If absent, the run ends with its session. */
  readonly detached_id?: RequestId
  readonly terminal: Terminal | null
  /** Absent if the client leaves target and modes to the configuration. */
  readonly wish?: ExecPreference
}

/** Events of a running program, in order. */
export type LocalRunEvent =
  | { readonly type: 'stdout' | 'stderr'; readonly data: Uint8Array }
  /** `amount` is the number of processes of `descendants_ended`, otherwise absent or null. */
  | { readonly type: 'warning'; readonly kind: WarningKind; readonly amount?: number | null }

/** The run waits for an approval. */
export interface RunWaiting {
  /** ID of the future run. */
  readonly request_id: RequestId
  /** Null if the target asks its own approvers. */
  readonly question_id: string | null
  readonly expires_at_ms: number
}

export interface LocalRunSink {
  /** Called once for the approvers of this machine and once for those of a target, before the run is accepted or refused. */
  waiting?(waiting: RunWaiting): void
  /** Aborted with an `AppError` when the client no longer waits for the approvers. */
  readonly gone?: AbortSignal
  /** Receives one event at a time. A promise delays the next event and pauses the program. A rejection cancels the run. */
  event(event: LocalRunEvent): void | Promise<void>
}

export type LocalOutcome = RecordedOutcome & { readonly denial_reason: DenialReason | null }

export interface LocalRunHandle {
  readonly requestId: RequestId
  /** ISO 8601. */
  readonly startedAt: string
  /** Null for a run on a target, which does not report it. */
  readonly cwd: string | null
  /** Null if the configuration has no modes. */
  readonly ranOn?: RanOnJson | null
  /** Preferences that were clamped to the configured modes. */
  readonly cuts?: readonly ClampedPreferenceJson[]
  /** Other readers of the output on the target, known when it has begun. Absent for a run on this machine. */
  readonly notices?: readonly SessionNotice[]
  /** Limits in force, in milliseconds and in bytes of both streams. */
  readonly caps: { readonly timeout_ms: number; readonly max_output_bytes: number }
  /** Null when the program runs, or the outcome if it never ran. */
  readonly begun: Promise<LocalOutcome | null>
  /** Resolves when the sink has taken all output, or null after an internal error. */
  readonly ended: Promise<LocalOutcome | null>
  /** The outcome is known, though the sink may not have taken all output. */
  readonly over: boolean
  /** Accepts as many bytes as there is room for and returns their number. Throws `conflict` if stdin is closed. */
  input(data: Uint8Array, eof: boolean): number
  /** `TERM` or `SIGTERM`. Returns false if no program runs. Throws `bad_request` for an unknown signal. */
  signal(signal: string): boolean
  /** Sends SIGTERM to the process tree, and SIGKILL after the grace period. */
  cancel(): void
  /** Has no effect without a terminal. */
  resize(size: TerminalSize): void
  /** Closes the terminal. Sends SIGHUP to the process tree, and SIGKILL after the grace period. */
  hangUp(): void
}

export interface ReachedTarget {
  readonly agent_id: string
  readonly machine_id: string
  /** The trust decision of this machine's daemon. */
  readonly decision: string
}

export interface MatchedTarget {
  /** The contact's name, else the ID. */
  readonly host: string
  readonly agent_id: string
  /** Value that opens a session of this target, if the policy allows it. */
  readonly target: string
}

/** Every method throws an `AppError` for a refusal, for example `unknown_session`. */
export interface LocalExecutor {
  /** A run may wait for an approval. Absent means never. */
  readonly mayAsk?: boolean
  open(opening: SessionOpening): Promise<{ readonly session: string; readonly grant: SessionGrant }>
  /** Ends the session's programs and resolves to their number. */
  close(session: string): Promise<number>
  /** Logs a call that the interface refused itself. */
  refused(
    session: string,
    refusal: { readonly method: string; readonly code: 'unknown_session' | 'unknown_process'; readonly detail: string },
  ): Promise<void>
  /** `signal`, aborted with an `AppError`, ends the call with that error. A change that has begun is finished or undone. */
  file(call: FileCall, signal?: AbortSignal): Promise<FileAnswer>
  /** The program that a command would start on this machine. Throws `unsupported_capability` for a session of a target. */
  lookUp(session: string, command: string): Promise<CommandLookup>
  /** Connects to the session's target without a run. Throws `conflict` for a session of this machine, and dial errors. */
  reach(session: string, signal: AbortSignal): Promise<ReachedTarget>
  /** Asks the session's target which commands it allows. Throws like `reach`. */
  rules(session: string, signal: AbortSignal): Promise<RulesJson>
  /**
   * Resolves words to agents, in their order and each once, without asking them. Throws `unsupported_capability` if targets are not
   * allowed, and the errors of `GET /contacts/select`.
   */
  select(words: readonly string[], signal: AbortSignal): Promise<readonly MatchedTarget[]>
  /** `signal`, aborted before this resolves, ends the run. */
  start(start: LocalRunRequest, sink: LocalRunSink, signal?: AbortSignal): Promise<LocalRunHandle>
  /** Finds the run of this key in the audit log. Returns null if the run or the audit log is missing. */
  recall(keySha256: string): Promise<JournalledRunHandle | null>
}
