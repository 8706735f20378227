/** Characters of foreign text that an error message quotes. */
export const MAX_QUOTED = 200

/** Reasons for which a server refuses, or a substitute if the server gives no name. */
export type RexdErrorName =
  | 'parse_error'
  | 'invalid_request'
  | 'method_not_found'
  | 'bad_request'
  | 'unauthorized'
  | 'forbidden_host'
  | 'unknown_session'
  | 'command_denied'
  | 'approval_denied'
  | 'approval_timeout'
  | 'approval_unavailable'
  | 'approval_mismatch'
  | 'forbidden_path'
  | 'timeout'
  | 'output_limit_exceeded'
  | 'unknown_process'
  | 'conflict'
  | 'unsupported_capability'
  | 'resource_limit'
  | 'file_not_found'
  | 'file_error'
  | 'journal_unavailable'
  | 'shutting_down'
  | 'daemon_unreachable'
  | 'peer_unreachable'
  | 'not_found'
  | 'method_not_allowed'
  | 'internal'
  | 'rexd_error'

/** Names for the error codes of a server that sends only codes. */
const NAMES: Readonly<Record<number, RexdErrorName>> = {
  [-32_700]: 'parse_error',
  [-32_600]: 'invalid_request',
  [-32_601]: 'method_not_found',
  [-32_602]: 'bad_request',
  [-32_603]: 'internal',
  [-32_001]: 'unauthorized',
  [-32_002]: 'forbidden_path',
  [-32_003]: 'timeout',
  [-32_004]: 'output_limit_exceeded',
  [-32_005]: 'unknown_process',
  [-32_006]: 'conflict',
  [-32_007]: 'unsupported_capability',
  [-32_008]: 'resource_limit',
  [-32_009]: 'file_not_found',
  [-32_010]: 'file_error',
}

/** A refusal of the server, or of the client before it sends. `docs/errors.md` lists every code. */
export class RexdError extends Error {
  /** The JSON-RPC error code. */
  readonly code: number
  /** `data.code`, such as `forbidden_path`. Compare this. */
  override readonly name: RexdErrorName
  readonly data: Readonly<Record<string, unknown>>

  constructor(init: { code: number; message: string; data?: Readonly<Record<string, unknown>> | undefined }) {
    super(init.message)
    this.code = init.code
    this.data = init.data ?? {}
    const { code: name } = this.data
    // A newer server may send further names.
    this.name = typeof name === 'string' ? (name as RexdErrorName) : (NAMES[init.code] ?? 'rexd_error')
  }
}

/** The connection was lost or was never made. */
export class RexdDisconnected extends Error {
  override readonly name = 'RexdDisconnected'
  /** True if the request had been sent, so that its effect is unknown. False if it had no effect. */
  readonly sent: boolean

  constructor(message: string, init: { sent: boolean; cause?: unknown }) {
    super(message, init.cause === undefined ? undefined : { cause: init.cause })
    this.sent = init.sent
  }
}

/** The server violates REXD/1, or part of its output was lost on the way. */
export class RexdProtocolError extends Error {
  override readonly name = 'RexdProtocolError'
}

/** Events of a session were lost. Output is missing, and an end may never be reported. `wait` and `session.info` show the state. */
export class RexdGap extends Error {
  override readonly name = 'RexdGap'
  /** The cursors of the first and the last lost event. */
  readonly from: number
  readonly to: number

  constructor(from: number, to: number) {
    super(`events ${from} to ${to} of the session are lost`)
    this.from = from
    this.to = to
  }
}

export const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** Controls and invisible characters, as in `base/visible-text.ts`, which the SDK does not load. */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]+/gu

/** Foreign text of several lines. Invisible characters become blanks. */
export const visibleLines = (text: string): string =>
  text
    .split('\n')
    .map((line) => line.replaceAll(INVISIBLE, ' '))
    .join('\n')

/** Foreign text for one line, bounded and without invisible characters. */
export const quote = (text: string, max = MAX_QUOTED): string => {
  const short = text.length > max ? `${text.slice(0, max)}…` : text
  return short.replaceAll(INVISIBLE, ' ').trim()
}
