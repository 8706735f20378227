/** One row of the error table, with the way in which each interface reports a code. */
interface ErrorRow {
  /** HTTP status of the REST API. */
  readonly status: number
  /** JSON-RPC 2.0 error code. */
  readonly rpc: number
  /** Exit status of the command line. */
  readonly exit: number
  readonly text: string
}

/**
 * Every failure that may leave the program. `deploy/docs/errors.ts` has the text of each for docs/errors.md. A denial or an exit of a run
 * is a value, never an error.
 */
export const ERROR_TABLE = {
  bad_request: { status: 400, rpc: -32602, exit: 2, text: 'the request is not valid' },
  bad_config: { status: 500, rpc: -32603, exit: 2, text: 'the configuration is not valid' },
  bad_acl: { status: 500, rpc: -32603, exit: 2, text: 'the ACL file is not valid' },
  bad_contacts: { status: 500, rpc: -32603, exit: 2, text: 'the contacts file is not valid' },
  bad_groups: { status: 500, rpc: -32603, exit: 2, text: 'groups.toml is not valid' },
  bad_successions: { status: 500, rpc: -32603, exit: 2, text: 'the successions file is damaged' },
  bad_revocations: { status: 500, rpc: -32603, exit: 2, text: 'the revocations file is not valid' },
  bad_runs: { status: 500, rpc: -32603, exit: 1, text: 'the file of detached runs cannot be used' },
  bad_card: { status: 400, rpc: -32602, exit: 1, text: 'the agent card is not valid' },
  bad_enrolment: { status: 400, rpc: -32602, exit: 2, text: 'the enrolment token or file is not valid' },
  enrolment_refused: { status: 403, rpc: -32001, exit: 2, text: 'the operator did not enrol this machine' },
  bad_key_file: { status: 500, rpc: -32603, exit: 2, text: 'the key file is not valid' },
  loose_permissions: { status: 500, rpc: -32603, exit: 2, text: 'a file is readable or writable by other users' },
  malformed: { status: 400, rpc: -32602, exit: 1, text: 'the bytes are not a valid message' },
  unauthorized: { status: 401, rpc: -32001, exit: 1, text: 'the token is missing or wrong' },
  operator_proof_required: { status: 403, rpc: -32001, exit: 1, text: 'only an operator may do this' },
  forbidden_host: { status: 403, rpc: -32001, exit: 1, text: 'the Host or Origin header is not one of this server' },
  not_found: { status: 404, rpc: -32601, exit: 1, text: 'not found' },
  method_not_allowed: { status: 405, rpc: -32601, exit: 1, text: 'the route does not support this method' },
  unknown_agent: { status: 404, rpc: -32602, exit: 255, text: 'no contact or agent matches that name or ID' },
  no_hosts: { status: 404, rpc: -32602, exit: 255, text: 'the host expression matches no hosts' },
  unknown_session: { status: 404, rpc: -32001, exit: 1, text: 'this client has no such session' },
  command_denied: { status: 403, rpc: -32001, exit: 1, text: 'the command is not allowed' },
  approval_denied: { status: 403, rpc: -32001, exit: 1, text: 'an approver refused it' },
  approval_timeout: { status: 403, rpc: -32001, exit: 1, text: 'no approver answered in time' },
  approval_unavailable: {
    status: 503,
    rpc: -32001,
    exit: 1,
    text: 'no approval service is running: start x0xd --init, or x0x desk, as this user',
  },
  approval_mismatch: { status: 409, rpc: -32001, exit: 1, text: 'the command has changed since it was approved' },
  forbidden_path: { status: 403, rpc: -32002, exit: 1, text: 'the path is outside the allowed roots' },
  sandbox_unavailable: { status: 503, rpc: -32007, exit: 1, text: 'no sandbox is available on this machine' },
  output_limit_exceeded: { status: 413, rpc: -32004, exit: 1, text: 'the command wrote more than the output limit' },
  unknown_process: { status: 404, rpc: -32005, exit: 1, text: 'this session has no such process' },
  unsupported_capability: { status: 403, rpc: -32007, exit: 1, text: 'the session does not have this capability' },
  resource_limit: { status: 413, rpc: -32008, exit: 1, text: 'the request exceeds a limit' },
  file_not_found: { status: 404, rpc: -32009, exit: 1, text: 'no such file' },
  file_error: { status: 409, rpc: -32010, exit: 1, text: 'the file system reported an error' },
  unknown_run: { status: 404, rpc: -32005, exit: 1, text: 'no run has that ID' },
  bad_range: { status: 416, rpc: -32602, exit: 1, text: 'the range begins after the end of the file' },
  ambiguous_agent: { status: 409, rpc: -32602, exit: 255, text: 'more than one agent matches' },
  conflict: { status: 409, rpc: -32006, exit: 1, text: 'the state does not allow this' },
  too_large: { status: 413, rpc: -32008, exit: 1, text: 'the body is too large' },
  rate_limited: { status: 429, rpc: -32008, exit: 1, text: 'too many requests' },
  internal: { status: 500, rpc: -32603, exit: 70, text: 'internal error' },
  bad_approvals: { status: 500, rpc: -32603, exit: 2, text: 'the approvals file is not valid' },
  journal_unavailable: { status: 503, rpc: -32603, exit: 1, text: 'the journal cannot be written' },
  shutting_down: { status: 503, rpc: -32603, exit: 1, text: 'the daemon is stopping' },
  draining: { status: 503, rpc: -32603, exit: 255, text: 'the daemon is draining: it restarts and accepts no new command' },
  peer_unreachable: { status: 502, rpc: -32603, exit: 255, text: 'the agent cannot be reached' },
  peer_rejected: { status: 502, rpc: -32603, exit: 255, text: 'the agent refused the link' },
  upgrade: { status: 502, rpc: -32603, exit: 255, text: 'the releases of x0x on the two machines cannot work together' },
  daemon_unreachable: { status: 502, rpc: -32603, exit: 255, text: 'the local daemon does not answer' },
  timeout: { status: 504, rpc: -32003, exit: 255, text: 'the time limit was reached' },
} as const satisfies Record<string, ErrorRow>

export type ErrorCode = keyof typeof ERROR_TABLE

/** The error code that another program reports, or `internal` if the table lacks it. */
export const errorCodeOf = (code: unknown): ErrorCode =>
  typeof code === 'string' && Object.hasOwn(ERROR_TABLE, code) ? (code as ErrorCode) : 'internal'

/** An error with a code of the table, the next step for the user, and data for programs. */
export class AppError extends Error {
  readonly code: ErrorCode
  /** Facts for programs, such as file, line, key or candidates. They contain no secrets. */
  readonly data: Readonly<Record<string, unknown>>

  constructor(code: ErrorCode, message?: string, options: { cause?: unknown; data?: Record<string, unknown> } = {}) {
    super(message ?? ERROR_TABLE[code].text, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'AppError'
    this.code = code
    this.data = options.data ?? {}
  }
}

/** Tests the name, because each bundle has its own class and one bundle may report an error of another. */
export const isAppError = (error: unknown, code?: ErrorCode): error is AppError =>
  error instanceof Error && error.name === 'AppError' && (code === undefined || (error as AppError).code === code)

/** The next step that an error names, as a field of its report. Absent without a step, or if the message has it. */
export const nextOf = (error: unknown): { readonly next?: string } => {
  const next = isAppError(error) ? error.data['next'] : null
  return typeof next === 'string' && next !== '' ? { next } : {}
}

/** The code of a system error, such as `ENOENT`. Undefined for an AppError, whose code is of another kind. */
export const errnoOf = (error: unknown): string | undefined =>
  isAppError(error) ? undefined : (error as NodeJS.ErrnoException | undefined)?.code

export const isMissing = (error: unknown): boolean => ['ENOENT', 'ENOTDIR'].includes(errnoOf(error) ?? '')

/** The result of `work`, or null if it throws. For questions where "unknown" is an answer. */
export const attempt = <T>(work: () => T): T | null => {
  try {
    return work()
  } catch {
    return null
  }
}

export const errorText = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** The message, followed by the next step on indented lines. */
export const textWithNext = (error: unknown): string => {
  const { next } = nextOf(error)
  return next === undefined ? errorText(error) : `${errorText(error)}\n${next.replaceAll(/^/gm, '  ')}`
}

export const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)))

/** Any thrown value as an AppError. A value of another class becomes `internal`. */
export const asAppError = (error: unknown): AppError =>
  isAppError(error) ? error : new AppError('internal', errorText(error), { cause: error })
