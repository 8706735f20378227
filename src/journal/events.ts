import type { RanOnJson, ToolFacts } from '../protocol/api/exec-target.ts'
import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'
import type { Containment, DenialReason, LocalInterface, TrustLevel, WarningKind } from '../protocol/reasons.ts'
import type { DetachedAsk } from '../protocol/wire/detached.ts'
import { LIFE_EVENTS, type ChainEvent } from './chain-events.ts'
import type { ApprovalLogEvent, DeskRefusedEvent } from './desk-events.ts'
import type { ArgvCut, RunKey } from './run-key.ts'

/** Its owner reads the output of a detached run. */
export interface AttachEvent extends RunKey {
  readonly event: 'attach'
  /** Bytes of output that it does not want again. */
  readonly from: number
}

/** The output of a detached run is about to be removed. */
export interface ForgetEvent extends RunKey {
  readonly event: 'forget'
  readonly by: 'requester' | 'time'
}

/** A question of ours about a detached run that is about to be signed. The ids are those of whom it is for. */
export interface JournalDetachedRequest extends RunKey {
  readonly event: 'detached_asked'
  readonly ask: DetachedAsk
  readonly from: number
}

/** What is asked about runs that outlive their callers, on either side. */
export type JournalDetachedEvent = AttachEvent | ForgetEvent | JournalDetachedRequest

/** An operator's change of whom this agent trusts, a run that an operator ended, or a request that claimed to be an operator's and proved nothing. */
export interface AuthorityEvent {
  readonly event: 'authority'
  /** As `Operation` of the executor's port, or `exec_run`. */
  readonly operation: string
  /** Whom it is about; null: not known, or this agent itself. */
  readonly agent: AgentId | null
  readonly machine: MachineId | null
  readonly level: TrustLevel | null
  /** The run that was ended; absent where it is about none. */
  readonly request_id?: RequestId
  /** A code of the error table: the proof was refused, and nothing is done. Null: it was proven, and is about to be done. */
  readonly code: string | null
  readonly detail: string | null
}

/** An operator asked for the ACL file to be read again (SIGHUP), and what became of it. */
export interface ReloadEvent {
  readonly event: 'reload'
  /** `taken`: it allows less than the one before. `refused`: it allows more, and needs a restart. `invalid`: it is missing, or wrong. */
  readonly outcome: 'taken' | 'unchanged' | 'refused' | 'invalid'
  readonly file: string
  /** Of the file as it was read, hex; null: it could not be. */
  readonly sha256: string | null
  readonly detail: string | null
}

/** What a journal line may be about; `docs/exec.md` has a line for each. */
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

/** A request that policy allowed, written before anything is started. */
export interface RequestEvent extends RunKey {
  readonly event: 'request'
  readonly argv: readonly string[]
  /** Description of the ACL entry that allowed it. */
  readonly matched_acl: string | null
  readonly stdin_bytes: number
  /** Of stdin, hex; above one mebibyte of the hashes of its pieces, one behind the other. Null: none was announced. */
  readonly stdin_sha256: string | null
  /** The limit in force, in milliseconds. */
  readonly timeout_ms: number
  /** Of the signed bytes that asked for it, hex; null: nobody signed. */
  readonly request_sha256: string | null
  /** What was found for argv[0], the very file; null: it does not run here. */
  readonly executable: ExecutableFile | null
  /** Whose name it runs under; null: the daemon's own user. */
  readonly account: string | null
  /** Who allowed it: the desk's word, `agents:ID,ID`, or both joined by `+`; absent: nobody had to. */
  readonly approved_by?: string
  /** It outlives its caller, and so many bytes of its output are kept at most; absent: it ends with its caller. */
  readonly keep_bytes?: number
}

/** Device and inode as decimal text: they may not fit a number. */
export interface ExecutableFile {
  readonly path: string
  readonly dev: string
  readonly ino: string
}

export interface StartedEvent extends RunKey {
  readonly event: 'started'
  /** Of the program, or of the wrapper that started it. */
  readonly pid: number
  /** What holds its processes together. */
  readonly containment: Containment
}

export interface JournalWarning extends RunKey {
  readonly event: 'warning'
  readonly kind: WarningKind
  /** Bytes of the stream when it was given; null where the warning is not about a stream. */
  readonly bytes: number | null
  /** Processes that were ended; only of `descendants_ended`. */
  readonly processes?: number
}

/** How a run ended, written before the requester is told. */
export interface JournalExit extends RunKey {
  readonly event: 'exit'
  readonly code: number | null
  readonly signal: number | null
  readonly duration_ms: number
  /** All bytes the child wrote, those beyond a cap included. */
  readonly stdout_bytes: number
  readonly stderr_bytes: number
  /** Of the bytes that were sent, hex; null where they are not known here. */
  readonly stdout_sha256: string | null
  readonly stderr_sha256: string | null
  readonly truncated: boolean
}

export interface DenialEvent extends RunKey {
  readonly event: 'denial'
  readonly argv: readonly string[]
  /** Absent where argv is whole. */
  readonly argv_cut?: ArgvCut
  readonly reason: DenialReason
  /** What the operator of this machine may know and the requester may not; null when there is no more to say. */
  readonly detail: string | null
}

/** A run whose daemon or `rexd` died before it could say how it ended; written by the next start. */
export interface LostEvent extends RunKey {
  readonly event: 'lost'
}

/**
 * A Request of ours that is about to be signed, in the journal of what this agent asks of others: here the
 * ids are those of whom it is for.
 */
export interface JournalRequest extends RunKey {
  readonly event: 'asked'
  readonly argv: readonly string[]
  readonly stdin_bytes: number
  /** As asked for, in milliseconds; null = the cap over there. */
  readonly timeout_ms: number | null
  /** The fan-out that it is a part of; absent: of none. */
  readonly fanout_id?: string
  /** An operator proved it; else whoever holds the bearer token asked. */
  readonly proven: boolean
  /** It is to outlive us; absent: it is not. */
  readonly detach?: { readonly lifetime_ms: number | null; readonly keep_bytes: number | null }
}

/** A question of ours that is about to be signed: which commands this agent may run there. The ids are those of whom it is for. */
export interface JournalRulesRequest extends RunKey {
  readonly event: 'rules_asked'
}

/** A pair is about to be told which commands it may run here. */
export interface RulesEvent extends RunKey {
  readonly event: 'rules'
  /** Commands that it is told of, and those that did not fit. */
  readonly listed: number
  readonly left_out: number
  readonly detail: null
}

/** A session of one of this host's own doors. What its caller says of itself is a label, not an identity. */
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
  /** Names alone: a value may be a secret. */
  readonly env: readonly string[]
  /** The agent that the mesh is asked for; null: it runs here. */
  readonly target: string | null
  /** Absent: no tool. */
  readonly tool?: ToolFacts
  /** Where it runs; absent: the configuration does not choose among hosts. */
  readonly ran_on?: RanOnJson
  /** Who allowed it; absent: nobody had to be asked. */
  readonly approved_by?: string
}

export interface JournalSessionEvent extends LocalKey {
  readonly event: 'session'
  readonly state: 'opened' | 'closed'
  readonly roots: readonly string[]
  /** Where its commands run; null: here. */
  readonly target: string | null
}

/** A file operation that reads, or that is about to change something. */
export interface FileEvent extends LocalKey {
  readonly event: 'file_read' | 'file_write'
  readonly method: string
  /** Absolute, without `.`, `..` and doubled slashes. */
  readonly path: string
  /** Of `fs.glob`, its first MAX_JOURNALLED_PATTERN characters. */
  readonly pattern?: string
  /** Of `fs.list`. */
  readonly recursive?: boolean
  /** Content that goes in; null where nothing does. */
  readonly bytes: number | null
}

/** A call of a session that was refused. */
export interface RefusedEvent extends LocalKey {
  readonly event: 'refused'
  /** Of the run that did not come to be; absent where none was asked for, or it was not requested yet. */
  readonly request_id?: RequestId
  readonly method: string
  /** What was to run; null where nothing was. */
  readonly argv: readonly string[] | null
  /** Absent where argv is whole. */
  readonly argv_cut?: ArgvCut
  /** A code of the error table. */
  readonly code: string
  readonly detail: string
}

/** A request to a listener with a missing or wrong token, Host or Origin. Its own texts are cut. */
export interface HttpRefusedEvent {
  readonly event: 'http_refused'
  /** A code of the error table. */
  readonly code: string
  readonly method: string
  readonly path: string
  readonly host: string | null
  readonly origin: string | null
  /** Address of who connected; null on a unix socket. */
  readonly remote: string | null
  readonly detail: null
}

/** A refusal, or an answer for which nothing runs: its caller can cause any number, so a meter says how many are written. */
export type RefusalEvent = DenialEvent | RulesEvent | RefusedEvent | AuthorityEvent | HttpRefusedEvent | DeskRefusedEvent

/** Refusals that were counted instead of written. */
export interface RefusalsSuppressedEvent {
  readonly event: 'refusals_suppressed'
  readonly count: number
  /** How many different sources they came from. */
  readonly sources: number
  /** The first of them, MAX_NAMED_SOURCES at most and strangers last: an agent's id, `stranger AGENT.MACHINE`, a door, or an event. */
  readonly named: readonly string[]
  /** How many for each denial reason or error code, and for `rules`; beyond MAX_NAMED_REASONS of these as `other`. */
  readonly reasons: Readonly<Record<string, number>>
  /** Of the first and of the last; ISO 8601. */
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

/** What other agents' runs, and our own Requests, leave behind. */
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

/** Metadata only: no output, no stdin, no secret. */
export type JournalEvent = MeshEvent | LocalEvent | ChainEvent | RefusalsSuppressedEvent | AuthorityEvent | ReloadEvent | ApprovalLogEvent
export const isMeshEvent = <E extends JournalEvent>(event: E): event is E & MeshEvent => 'agent_id' in event

/** What every line carries before the fields of its event. */
export interface LineHead {
  /** ISO 8601, UTC, milliseconds. */
  readonly ts: string
  /** UUID of the writing process's life. */
  readonly chain: string
  /** Place in the chain, from 0. */
  readonly n: number
  /** SHA-256, hex, of the chain's previous line without its line feed; zeros for the first. */
  readonly prev: string
}

export type JournalLine = LineHead & JournalEvent
