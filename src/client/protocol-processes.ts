/** The methods of REXD/1 for processes. Times are milliseconds, sizes are bytes; what has a `?` may be left out. */

/** How bytes stand in a JSON text: as UTF-8 text, or in base64 (RFC 4648, 4, with padding). */
export type Encoding = 'utf8' | 'base64'

export interface SessionParams {
  readonly session_id: string
}

export interface ProcessParams extends SessionParams {
  readonly process_id: string
}

export interface TerminalParams extends SessionParams {
  readonly pty_id: string
}

/** What is to run, where, and with which variables. */
export interface ProgramParams extends SessionParams {
  /** The program and its arguments; either this or `command`. */
  readonly argv?: readonly string[]
  /** A text for `/bin/sh`, together with `shell: true`. */
  readonly command?: string
  readonly shell?: boolean
  /** By a login shell, which reads the profiles of the user there. */
  readonly login?: boolean
  readonly cwd?: string
  /** Variables that are set beside those that the server sets. */
  readonly env?: Readonly<Record<string, string>>
}

export interface ExecStartParams extends ProgramParams {
  /** What the program reads: at most 1 MiB; nothing unless told. */
  readonly stdin?: string
  readonly stdin_encoding?: Encoding
  /** More of stdin follows by `exec.input`. */
  readonly stdin_open?: boolean
  readonly timeout_ms?: number
  readonly max_output_bytes?: number
  /** More output than it may write ends it, instead of being cut off. */
  readonly fail_on_limit?: boolean
  /** It outlives the session. */
  readonly detach?: boolean
}

export interface ExecStarted {
  readonly process_id: string
  /** ISO 8601. */
  readonly started_at: string
  /** What counts, where more was asked for. */
  readonly timeout_ms: number
  readonly max_output_bytes: number
}

export interface ExecWaitParams extends ProcessParams {
  /** How long to wait for its end; 0 asks only how it stands. For ever unless told. */
  readonly timeout_ms?: number
}

export interface ProcessStatus {
  readonly status: 'running' | 'exited' | 'killed' | 'timed_out'
  /** Null while it runs, and when a signal ended it. */
  readonly exit_code: number | null
  /** The signal that ended it, as `SIGTERM`. */
  readonly signal: string | null
  /** What it wrote, whether it was passed on or not. */
  readonly bytes_stdout: number
  readonly bytes_stderr: number
  /** What it wrote waits for its reader, and so does it; its end is told behind that. */
  readonly held: boolean
}

export interface ProcessSummary extends ProcessStatus {
  readonly process_id: string
  readonly argv: readonly string[]
  /** ISO 8601. */
  readonly started_at: string
  /** Null: on an agent of the mesh, which says nothing of that. */
  readonly cwd: string | null
}

export interface ExecKillParams extends ProcessParams {
  /** As `KILL` or `SIGKILL`; `TERM` unless told. */
  readonly signal?: string
}

export interface ExecKilled {
  /** False: it was over already. */
  readonly ok: boolean
}

export interface ExecInputParams extends ProcessParams {
  readonly data: string
  readonly encoding?: Encoding
  /** Nothing more comes. It counts only where all of `data` was taken. */
  readonly eof?: boolean
}

export interface ExecInputTaken {
  /** Bytes from the beginning of `data` that there was room for; the rest is to be sent again. */
  readonly accepted_bytes: number
}

// ---- on a terminal ----

export interface PtyOpenParams extends ProgramParams {
  /** 80 unless told. */
  readonly cols?: number
  /** 24 unless told. */
  readonly rows?: number
  /** The longest that there is unless told. */
  readonly timeout_ms?: number
  readonly max_output_bytes?: number
}

export interface PtyOpened extends ExecStarted {
  readonly pty_id: string
}

export interface PtyInputParams extends TerminalParams {
  readonly data: string
  readonly encoding?: Encoding
}

export interface PtyResizeParams extends TerminalParams {
  readonly cols: number
  readonly rows: number
}

export interface PtyCloseParams extends TerminalParams {
  /** Hang up and end what does not go; else it is only told. True unless told. */
  readonly kill?: boolean
}

export interface Done {
  readonly ok: boolean
}
