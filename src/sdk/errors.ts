/** What the text of an error quotes of what somebody else said. */
export const MAX_QUOTED = 200

/** What a server may refuse with, and what stands for it where it gives no name. */
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

/** Names for the codes of a server that gives none. */
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

/** What the server refuses, or what the client refuses in its name before it is asked. `docs/errors.md` has every code. */
export class RexdError extends Error {
  /** The number of JSON-RPC. */
  readonly code: number
  /** `data.code`, as `forbidden_path`: what to compare with. */
  override readonly name: RexdErrorName
  readonly data: Readonly<Record<string, unknown>>

  constructor(init: { code: number; message: string; data?: Readonly<Record<string, unknown>> | undefined }) {
    super(init.message)
    this.code = init.code
    this.data = init.data ?? {}
    const { code: name } = this.data
    // What a newer server may have besides is a text as well.
    this.name = typeof name === 'string' ? (name as RexdErrorName) : (NAMES[init.code] ?? 'rexd_error')
  }
}

/** There is no connection, or it was lost. */
export class RexdDisconnected extends Error {
  override readonly name = 'RexdDisconnected'
  /** What was asked had been sent: nobody knows whether it was done. False: it was not. */
  readonly sent: boolean

  constructor(message: string, init: { sent: boolean; cause?: unknown }) {
    super(message, init.cause === undefined ? undefined : { cause: init.cause })
    this.sent = init.sent
  }
}

/** The other side does not speak REXD/1 as it is written, or something of it went missing on the way. */
export class RexdProtocolError extends Error {
  override readonly name = 'RexdProtocolError'
}

/** Events of a session were lost for good: what a process wrote is not all here, and how it ended may never be told. `wait` and `session.info` tell how it stands. */
export class RexdGap extends Error {
  override readonly name = 'RexdGap'
  /** The cursors of the first and the last of them. */
  readonly from: number
  readonly to: number

  constructor(from: number, to: number) {
    super(`events ${from} to ${to} of the session are lost`)
    this.from = from
    this.to = to
  }
}

/** The text of anything thrown. */
export const textOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** As `base/visible-text.ts`, which the library does without: what a terminal would obey, or nobody would see. */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]+/gu

/** Foreign text of several lines, with a blank for what is not visible. */
export const visibleLines = (text: string): string =>
  text
    .split('\n')
    .map((line) => line.replaceAll(INVISIBLE, ' '))
    .join('\n')

/** Foreign text as part of one line of ours: without what is not visible, and bounded. */
export const quote = (text: string, max = MAX_QUOTED): string => {
  const short = text.length > max ? `${text.slice(0, max)}…` : text
  return short.replaceAll(INVISIBLE, ' ').trim()
}
