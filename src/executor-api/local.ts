import type { AppError } from '../base/errors.ts'
import type { ClampedPreferenceJson, RanOnJson, JournalledFacts, ExecPreference, ToolFacts } from '../protocol/api/exec-target.ts'
import type { CommandLookup, RulesJson } from '../protocol/api/rules.ts'
import type { LifecycleFacts } from '../protocol/events/lifecycle.ts'
import type { RequestId } from '../protocol/ids.ts'
import type { DenialReason, LocalInterface, WarningKind } from '../protocol/reasons.ts'
import type { Capability, LimitName } from '../protocol/rexd/fields.ts'
import type { SessionGrant } from '../protocol/rexd/results.ts'
import type { RecordedOutcome } from '../protocol/tool-record.ts'

// What a door of this host may ask of the executor in its own process: types alone, so that it knows nothing else of it.

export interface SessionOpening {
  readonly door: LocalInterface
  readonly client_name: string
  /** An agent of the mesh, where its commands run; null: here. */
  readonly target: string | null
  /** Null: all that there are, as for `capabilities`. */
  readonly roots: readonly string[] | null
  readonly capabilities: readonly string[] | null
  /** What this door can carry. */
  readonly available: readonly Capability[]
  /** Asked for in place of the server's. */
  readonly limits: Readonly<Partial<Record<LimitName, number | undefined>>>
  /** Hears what becomes of runs of this session, and of no other; absent: nobody does. It must not throw. */
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
  /** `path`: what relative paths of the patch go on from. */
  | (OfFile & { readonly method: 'fs.patch'; readonly patch_text: Uint8Array })

/** The object of the protocol without its content, and the content. */
export interface FileAnswer {
  readonly result: object
  readonly data: Uint8Array
}

export interface TerminalSize {
  readonly cols: number
  readonly rows: number
}

/** `raw`: it shows what is written without a change, and stdin is /dev/null or a pipe, and no terminal. */
export type Terminal = TerminalSize & { readonly raw?: boolean }

/** How a run of another server ended, as the journal tells it. `goes_on`: that server still runs it. `unknown`: it does not tell. */
export type JournalledEnd =
  | { readonly kind: 'goes_on' | 'unknown' }
  | { readonly kind: 'refused'; readonly error: AppError }
  | { readonly kind: 'outcome'; readonly outcome: LocalOutcome }

/** A run that another server has begun for the same key. */
export type JournalledRunHandle = JournalledFacts & { readonly end: JournalledEnd }

export interface LocalRunRequest {
  readonly session: string
  /** Absent: no tool. */
  readonly tool?: ToolFacts
  readonly argv: readonly string[]
  /** `argv` is `/bin/sh -c TEXT`, because a shell was asked for. */
  readonly shell: boolean
  readonly cwd: string | null
  readonly env: Readonly<Record<string, string>>
  /** `env` is all of its environment, but for the name of its terminal; else it is added to that of the policy. */
  readonly clear_env?: boolean
  /** Given to the program at once; more follows by `LocalRun.input` where `input` is true. */
  readonly stdin: Uint8Array
  /** stdin is a pipe; else, without any bytes, it is /dev/null. */
  readonly input: boolean
  readonly timeout_ms: number | null
  readonly max_output_bytes: number | null
  readonly fail_on_limit: boolean
  readonly detach: boolean
  /** Begins a detached run of the target with this id, or follows the one that has it. Absent: the run ends with its session. */
  readonly detached_id?: RequestId
  readonly terminal: Terminal | null
  /** Absent: its caller leaves where it runs, and who is asked, to the configuration. */
  readonly wish?: ExecPreference
}

/** What happens while a program runs, in order. */
export type LocalRunEvent =
  | { readonly type: 'stdout' | 'stderr'; readonly data: Uint8Array }
  /** `amount`: of `descendants_ended` the number of processes; absent or null: none is known. */
  | { readonly type: 'warning'; readonly kind: WarningKind; readonly amount?: number | null }

/** Somebody is asked whether the run may begin. */
export interface RunWaiting {
  /** Of the run that there is to be. */
  readonly request_id: RequestId
  /** Null: those whom the target asks, of whom it says no more. */
  readonly question_id: string | null
  readonly expires_at_ms: number
}

export interface LocalRunSink {
  /** Told once of the human of this host, and once of those whom a target asks, before the run is accepted or refused. */
  waiting?(waiting: RunWaiting): void
  /** Aborted, with an `AppError`, when nobody waits for their answer any more. */
  readonly gone?: AbortSignal
  /** One event at a time. A promise holds what follows, and with it the program. A rejection cancels the run. */
  event(event: LocalRunEvent): void | Promise<void>
}

export type LocalOutcome = RecordedOutcome & { readonly denial_reason: DenialReason | null }

/** A run that was accepted. */
export interface LocalRunHandle {
  readonly requestId: RequestId
  /** ISO 8601. */
  readonly startedAt: string
  /** Null: it runs on a target, which does not say. */
  readonly cwd: string | null
  /** Null: the configuration does not choose among hosts. */
  readonly ranOn?: RanOnJson | null
  /** Wishes of its caller that were wider than what is configured. */
  readonly cuts?: readonly ClampedPreferenceJson[]
  /** What counts, where more was asked for: milliseconds, and bytes of both streams. */
  readonly caps: { readonly timeout_ms: number; readonly max_output_bytes: number }
  /** Null when its program runs; how it ended where it never did. */
  readonly begun: Promise<LocalOutcome | null>
  /** Settles when all that it wrote was taken by the sink; null: it failed inside, and nobody knows. */
  readonly ended: Promise<LocalOutcome | null>
  /** How it ended is known, though its sink may not have taken all that it wrote. */
  readonly over: boolean
  /** Takes what there is room for, from the beginning; answers how many bytes. Throws `conflict` when its stdin is closed. */
  input(data: Uint8Array, eof: boolean): number
  /** `TERM` or `SIGTERM`. False: nothing is there to be told. Throws `bad_request` for what is no signal. */
  signal(signal: string): boolean
  /** Ends everything that it started: SIGTERM, and SIGKILL after the grace. */
  cancel(): void
  /** Does nothing where there is no terminal. */
  resize(size: TerminalSize): void
  /** Closes its terminal: SIGHUP to everything on it, and SIGKILL after the grace. */
  hangUp(): void
}

/** A target that answered. */
export interface ReachedTarget {
  readonly agent_id: string
  readonly machine_id: string
  /** What the trust rules of this host's daemon say of it. */
  readonly decision: string
}

/** One of the agents that some words mean. */
export interface MatchedTarget {
  /** The contact's name, else the id. */
  readonly host: string
  readonly agent_id: string
  /** Opens its session, where the policy lets it be asked. */
  readonly target: string
}

/** Everything throws the `AppError` that refuses it, `unknown_session` among them. */
export interface LocalExecutor {
  /** A human may be asked before a run begins; absent: none is. */
  readonly mayAsk?: boolean
  open(opening: SessionOpening): Promise<{ readonly session: string; readonly grant: SessionGrant }>
  /** Ends its programs; answers how many there were. */
  close(session: string): Promise<number>
  /** For the journal: what the door refused by itself. */
  refused(
    session: string,
    refusal: { readonly method: string; readonly code: 'unknown_session' | 'unknown_process'; readonly detail: string },
  ): Promise<void>
  /** `signal`, aborted with an `AppError`, gives it up and that is thrown; what has begun to change something is finished or undone. */
  file(call: FileCall, signal?: AbortSignal): Promise<FileAnswer>
  /** What a run in this session would start, on this host. Throws `unsupported_capability` for a session of a target. */
  lookUp(session: string, command: string): Promise<CommandLookup>
  /** Asks the target of a session whether it answers; runs nothing. Throws `conflict` for a session of this host, and why it does not answer. */
  reach(session: string, signal: AbortSignal): Promise<ReachedTarget>
  /** Asks the target of a session which commands it allows; runs nothing. Throws as `reach`. */
  rules(session: string, signal: AbortSignal): Promise<RulesJson>
  /** Whom these words mean, in their order, each agent once; asks none of them. Throws `unsupported_capability` where no target may be asked, and as `GET /contacts/select`. */
  select(words: readonly string[], signal: AbortSignal): Promise<readonly MatchedTarget[]>
  /** `signal`, aborted before this settles, ends it. */
  start(start: LocalRunRequest, sink: LocalRunSink, signal?: AbortSignal): Promise<LocalRunHandle>
  /** The run of this key, as the journal knows it now; null: it knows none, or there is no journal. */
  recall(keySha256: string): Promise<JournalledRunHandle | null>
}
