import type { RanOnJson, ToolFacts } from '../protocol/api/exec-target.ts'
import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'
import type { Containment, DenialReason, LocalInterface, TrustLevel, WarningKind } from '../protocol/reasons.ts'
import type { DetachedAsk } from '../protocol/wire/detached.ts'
import { LIFE_EVENTS, type ChainEvent } from './chain-events.ts'
import type { ApprovalLogEvent, DeskRefusedEvent } from './desk-events.ts'
import type { ArgvCut, RunKey } from './run-key.ts'

/** The requester reads the output of a detached run. */
export interface AttachEvent extends RunKey {
  readonly event: 'attach'
  /** Bytes of output that it already has. */
  readonly from: number
}

/** The output of a detached run is about to be removed. */
export interface ForgetEvent extends RunKey {
  readonly event: 'forget'
  readonly by: 'requester' | 'time'
}

/** An own query about a detached run, about to be signed. The IDs are those of the target. */
export interface JournalDetachedRequest extends RunKey {
  readonly event: 'detached_asked'
  readonly ask: DetachedAsk
  readonly from: number
}

/** Events of detached runs, on either side. */
export type JournalDetachedEvent = AttachEvent | ForgetEvent | JournalDetachedRequest

/** An operator's change of trust, a run that an operator ended, a drain before a restart, or a request with an invalid operator proof. */
export interface AuthorityEvent {
  readonly event: 'authority'
  /** As `Operation` of the executor API, or `exec_run`, `drain` or `drain_cancelled`. */
  readonly operation: string
  /** Agent that it concerns, or null if unknown or this agent itself. */
  readonly agent: AgentId | null
  readonly machine: MachineId | null
  readonly level: TrustLevel | null
  /** The ended run, or absent. */
  readonly request_id?: RequestId
  /** A code of the error table for a refused proof, so that the operation does not happen. Null for a valid proof, before the operation. */
  readonly code: string | null
  readonly detail: string | null
}

/** Result of an operator's request to read the ACL again (SIGHUP). */
export interface ReloadEvent {
  readonly event: 'reload'
  /** `taken` means narrower than before. `refused` means wider, so a restart is needed. `invalid` means missing or wrong. */
  readonly outcome: 'taken' | 'unchanged' | 'refused' | 'invalid'
  readonly file: string
  /** SHA-256 of the file as it was read, hex, or null if it could not be read. */
  readonly sha256: string | null
  readonly detail: string | null
}

/** Event names. `deploy/docs/observability.ts` describes each. */
export const JOURNAL_EVENTS = [
  'request',
  'started',
  'warning',
  'exit',
  'denial',
  'lost',
  'attach',
  'forget',
  'asked',
  'detached_asked',
  'rules_asked',
  'rules',
  'session',
  'file_read',
  'file_write',
  'refused',
  'authority',
  'reload',
  'http_refused',
  'refusals_suppressed',
  'question',
  'approval',
  'store_changed',
  'desk_refused',
  ...LIFE_EVENTS,
] as const

/** An allowed request, written before anything is started. */
export interface RequestEvent extends RunKey {
  readonly event: 'request'
  readonly argv: readonly string[]
  /** Description of the ACL entry that allowed it. */
  readonly matched_acl: string | null
  readonly stdin_bytes: number
  /** SHA-256 of stdin, hex. Above one mebibyte, that of the concatenated hashes of its pieces. Null means that no stdin was announced. */
  readonly stdin_sha256: string | null
  /** Timeout in force in milliseconds. */
  readonly timeout_ms: number
  /** SHA-256 of the signed request, hex, or null for an unsigned one. */
  readonly request_sha256: string | null
  /** The file found for argv[0], or null if it runs elsewhere. */
  readonly executable: ExecutableFile | null
  /** User of the run, or null for the daemon's user. */
  readonly account: string | null
  /** The approval service's `by`, `agents:ID,ID`, or both joined by `+`, or absent if no approval was needed. */
  readonly approved_by?: string
  /** Maximum stored output of a detached run, or absent for other runs. */
  readonly keep_bytes?: number
  /** The requester types into a terminal of the run. Absent for pipes. */
  readonly terminal?: true
  /** Name of its recording. Absent if none is kept. */
  readonly recording?: string
}

/** Device and inode as decimal text, because they may exceed a number. */
export interface ExecutableFile {
  readonly path: string
  readonly dev: string
  readonly ino: string
}

export interface StartedEvent extends RunKey {
  readonly event: 'started'
  /** PID of the program, or of the wrapper that started it. */
  readonly pid: number
  readonly containment: Containment
}

export interface JournalWarning extends RunKey {
  readonly event: 'warning'
  readonly kind: WarningKind
  /** Bytes of the stream at the warning, or null if it does not concern a stream. */
  readonly bytes: number | null
  /** Number of ended processes, only with `descendants_ended`. */
  readonly processes?: number
}

/** How a run ended, written before the requester is informed. */
export interface JournalExit extends RunKey {
  readonly event: 'exit'
  readonly code: number | null
  readonly signal: number | null
  readonly duration_ms: number
  /** All bytes that the child wrote, with those beyond the limit. */
  readonly stdout_bytes: number
  readonly stderr_bytes: number
  /** SHA-256 of the sent bytes, hex, or null if unknown on this host. */
  readonly stdout_sha256: string | null
  readonly stderr_sha256: string | null
  readonly truncated: boolean
  /** Its recording. Absent if none is kept. */
  readonly recording?: JournalRecording
}

/** A recording after its end, as `RecordingEnd`. */
export interface JournalRecording {
  readonly name: string
  readonly bytes: number
  readonly sha256: string
  readonly complete: boolean
}

export interface DenialEvent extends RunKey {
  readonly event: 'denial'
  readonly argv: readonly string[]
  /** Absent if argv is complete. */
  readonly argv_cut?: ArgvCut
  readonly reason: DenialReason
  /** Details for the operator of this machine that the requester must not see, or null. */
  readonly detail: string | null
}

/** A run whose daemon or `rexd` died before it could record the end. The next start writes this event. */
export interface LostEvent extends RunKey {
  readonly event: 'lost'
}

/** An own Request about to be signed, in the request log. The IDs are those of the target. */
export interface JournalRequest extends RunKey {
  readonly event: 'asked'
  readonly argv: readonly string[]
  readonly stdin_bytes: number
  /** Requested timeout in milliseconds, or null for the target's maximum. */
  readonly timeout_ms: number | null
  /** Fan-out of the request, or absent for a single run. */
  readonly fanout_id?: string
  /** True with an operator proof, or false with the bearer token alone. */
  readonly proven: boolean
  /** Limits of a detached run, or absent for other runs. */
  readonly detach?: { readonly lifetime_ms: number | null; readonly keep_bytes: number | null }
  /** A run on a terminal. Absent for pipes. */
  readonly terminal?: true
}

/** An own query for permitted commands, about to be signed. The IDs are those of the target. */
export interface JournalRulesRequest extends RunKey {
  readonly event: 'rules_asked'
}

/** A pair is about to be informed of the commands that it may run. */
export interface RulesEvent extends RunKey {
  readonly event: 'rules'
  /** Number of commands in the reply, and of those that did not fit. */
  readonly listed: number
  readonly left_out: number
  readonly detail: null
}

/** A session of a local interface. The client's name is a label and no identity. */
export interface LocalKey {
  readonly door: LocalInterface
  readonly session_id: string
  readonly client_name: string
}

/** A run of such a session. */
export interface LocalRunKey extends LocalKey {
  readonly request_id: RequestId
}

export type AnyRunKey = RunKey | LocalRunKey

/** One text for each run. */
export const keyOf = (key: AnyRunKey): string =>
  'agent_id' in key ? `${key.agent_id}.${key.machine_id}.${key.request_id}` : `${key.session_id}.${key.request_id}`

type OfLocalRun<E extends RunKey> = LocalRunKey & Omit<E, keyof RunKey>

export type LocalRequestEvent = OfLocalRun<RequestEvent> & {
  readonly cwd: string
  /** Names only, because a value may be a secret. */
  readonly env: readonly string[]
  /** Mesh agent of the request, or null if it runs on this host. */
  readonly target: string | null
  /** Absent without a tool. */
  readonly tool?: ToolFacts
  /** Host of the run, or absent if the configuration does not choose among hosts. */
  readonly ran_on?: RanOnJson
  /** The approver, or absent if no approval was needed. */
  readonly approved_by?: string
}

export interface JournalSessionEvent extends LocalKey {
  readonly event: 'session'
  readonly state: 'opened' | 'closed'
  readonly roots: readonly string[]
  /** Agent that runs its commands, or null for this host. */
  readonly target: string | null
}

/** A file operation, written before it is done. If it fails, a `refused` line follows. */
export interface FileEvent extends LocalKey {
  readonly event: 'file_read' | 'file_write'
  readonly method: string
  /** Absolute, without `.`, `..` and double slashes. */
  readonly path: string
  /** First MAX_JOURNALLED_PATTERN characters of the pattern of `fs.glob`. */
  readonly pattern?: string
  /** For `fs.list`. */
  readonly recursive?: boolean
  /** Size of written content, or null for other operations. */
  readonly bytes: number | null
}

/** A refused call of a session. */
export interface RefusedEvent extends LocalKey {
  readonly event: 'refused'
  /** ID of the refused run, or absent if the call was for no run or had not got that far. */
  readonly request_id?: RequestId
  readonly method: string
  /** Command of the call, or null. */
  readonly argv: readonly string[] | null
  /** Absent if argv is complete. */
  readonly argv_cut?: ArgvCut
  /** A code of the error table. */
  readonly code: string
  readonly detail: string
}

/** An HTTP request with a missing or wrong token, Host or Origin. Its own texts are cut. */
export interface HttpRefusedEvent {
  readonly event: 'http_refused'
  /** A code of the error table. */
  readonly code: string
  readonly method: string
  readonly path: string
  readonly host: string | null
  readonly origin: string | null
  /** Address of the client, or null on a unix socket. */
  readonly remote: string | null
  readonly detail: null
}

/** A refusal, or a reply without a run. Requesters can cause any number, so their lines are rate-limited. */
export type RefusalEvent = DenialEvent | RulesEvent | RefusedEvent | AuthorityEvent | HttpRefusedEvent | DeskRefusedEvent

/** Refusals that were counted instead of written. */
export interface RefusalsSuppressedEvent {
  readonly event: 'refusals_suppressed'
  readonly count: number
  readonly sources: number
  /**
   * At most MAX_NAMED_SOURCES names. Each is an agent's ID, an interface, an event, or `stranger AGENT.MACHINE` for unlisted peers (last).
   */
  readonly named: readonly string[]
  /** Number for each denial reason or error code, and for `rules`. Beyond MAX_NAMED_REASONS they count as `other`. */
  readonly reasons: Readonly<Record<string, number>>
  /** Times of the first and the last, ISO 8601. */
  readonly from: string
  readonly to: string
}

export type LocalEvent =
  | LocalRequestEvent
  | OfLocalRun<StartedEvent>
  | OfLocalRun<JournalWarning>
  | OfLocalRun<JournalExit>
  | OfLocalRun<LostEvent>
  | JournalSessionEvent
  | HttpRefusedEvent
  | FileEvent
  | RefusedEvent

/** Events of other agents' runs and of own Requests. */
export type MeshEvent =
  | RequestEvent
  | StartedEvent
  | JournalWarning
  | JournalExit
  | DenialEvent
  | LostEvent
  | JournalRequest
  | JournalDetachedEvent
  | JournalRulesRequest
  | RulesEvent

/** Metadata without output, stdin or secrets. */
export type JournalEvent = MeshEvent | LocalEvent | ChainEvent | RefusalsSuppressedEvent | AuthorityEvent | ReloadEvent | ApprovalLogEvent
export const isMeshEvent = <E extends JournalEvent>(event: E): event is E & MeshEvent => 'agent_id' in event

/** Fields of each line before those of its event. */
export interface LineHead {
  /** ISO 8601, UTC, milliseconds. */
  readonly ts: string
  /** UUID of the chain. Each writing process has its own. */
  readonly chain: string
  /** Number in the chain, from 0. */
  readonly n: number
  /** SHA-256 of the chain's previous line without its line feed, hex. Zeros for the first. */
  readonly prev: string
}

export type JournalLine = LineHead & JournalEvent
