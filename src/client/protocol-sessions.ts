import type { CapabilityName, LimitName } from '../protocol/rexd-names.ts'
import type { Encoding, ProcessParams, ProcessSummary, SessionParams, TerminalParams } from './protocol-processes.ts'

/** The methods of REXD/1 for sessions, and its events. Times are milliseconds, sizes are bytes; what has a `?` may be left out. */

/** What a session may ask for below what the server grants. */
export interface LimitsParams {
  /** Output of one process, both streams together. */
  readonly max_output_bytes?: number
  /** What one `fs.read` answers at most. */
  readonly max_file_read_bytes?: number
  readonly max_processes_per_session?: number
  /** Of a command that names no time. */
  readonly default_timeout_ms?: number
  /** No command runs longer. */
  readonly hard_timeout_ms?: number
}

export interface SessionOpenParams {
  /** Who asks, for the journal of the server: at most 64 characters. */
  readonly client_name: string
  readonly client_version?: string
  /** Directories below those that the server allows; it may touch nothing else. All of them unless told. */
  readonly workspace_roots?: readonly string[]
  /** Names such as `exec` and `fs.read`; it gets those of them that the server grants. All of them unless told. */
  readonly requested_capabilities?: readonly CapabilityName[]
  readonly limits?: LimitsParams
  /** It waits for its caller for a while when the connection is lost; not over standard input and output. */
  readonly resumable?: boolean
  /** The agent of the mesh that everything happens on, where the server has a mesh; the server itself unless told. */
  readonly target?: string
}

/** What a session was granted. */
export interface SessionGrant {
  readonly capabilities: readonly CapabilityName[]
  /** The limits in force. A server of others may lack some. */
  readonly limits: Readonly<Partial<Record<LimitName, number>>>
  /** A relative path begins at the first of them. None where it is for an agent of the mesh. */
  readonly workspace_roots: readonly string[]
  /** The agent of the mesh that its commands run on; absent: they run on the server. */
  readonly target?: string
}

export interface SessionOpened extends SessionGrant {
  readonly session_id: string
  /** `rexd/1`. */
  readonly protocol: string
  readonly server_version: string
  /** By which its caller comes back to it; only where it waits for that. */
  readonly resume_token?: string
  /** Milliseconds that it waits. */
  readonly resume_window_ms?: number
}

export interface SessionResumeParams extends SessionParams {
  readonly resume_token: string
  /** Of the last event that the caller has; 0 unless told. */
  readonly cursor?: number
}

export interface SessionResumed extends SessionInfo {
  readonly protocol: string
  readonly server_version: string
}

export interface SessionEventsParams extends SessionParams {
  /** Of the last event that the caller has. */
  readonly cursor: number
  /** How long to wait for one more; 0 unless told, 60,000 at most. */
  readonly timeout_ms?: number
}

export interface SessionEventsResult {
  readonly events: readonly (RexdEvent & { readonly jsonrpc: '2.0' })[]
  /** Of the last of them, or as asked. */
  readonly cursor: number
  /** Events that are not kept any more; null: none are missing. */
  readonly gap: { readonly from: number; readonly to: number } | null
}

export interface SessionClosed {
  readonly ok: boolean
  /** How many processes were ended by it. */
  readonly terminated: number
}

export interface SessionInfo extends SessionGrant {
  readonly session_id: string
  readonly client_name: string
  /** ISO 8601. */
  readonly opened_at: string
  /** Where a command runs that names no directory; null: on an agent of the mesh, which says nothing of that. */
  readonly cwd: string | null
  /** Those that run, and those that ended not long ago. */
  readonly processes: readonly ProcessSummary[]
  /** Those that have outlived their sessions, of whomever; only where `exec.detach` is granted. */
  readonly detached?: readonly ProcessSummary[]
}

// ---- events: messages of the server that answer nothing ----

export interface EventParams extends ProcessParams {
  /** 1, 2, 3, … within a session whose events are kept; only there. */
  readonly cursor?: number
}

export interface OutputParams extends EventParams {
  /** 1, 2, 3, … for each stream of each process. */
  readonly seq: number
  readonly data: string
  readonly encoding: Encoding
}

/** The last event of a process that has run. */
export interface ExitParams extends EventParams {
  /** Null when a signal ended it. */
  readonly exit_code: number | null
  /** As `SIGTERM`. */
  readonly signal: string | null
  /** Its time was up. */
  readonly timed_out: boolean
  readonly duration_ms: number
  /** What it wrote, whether it was passed on or not. */
  readonly bytes_stdout: number
  readonly bytes_stderr: number
  /** Output was cut off, or its time was up. */
  readonly truncated: boolean
}

/** It could not be started, was ended for its output, or nobody knows how it ended. */
export interface ErrorParams extends EventParams {
  readonly code: number
  readonly message: string
  /** `code`: the name of the error. */
  readonly data: Readonly<Record<string, unknown>>
}

/** Events between these cursors, and they too, are not kept any more. */
export interface GapParams extends SessionParams {
  readonly from: number
  readonly to: number
}

/** Every event. */
export interface Events {
  'exec.stdout': OutputParams
  'exec.stderr': OutputParams
  'exec.exit': ExitParams
  'exec.error': ErrorParams
  'pty.output': OutputParams & TerminalParams
  'pty.exit': ExitParams & TerminalParams
  'session.gap': GapParams
}
export type RexdEvent = { [E in keyof Events]: { readonly method: E; readonly params: Events[E] } }[keyof Events]
