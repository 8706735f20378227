import { AppError } from '../../base/errors.ts'
import { MAX_TERMINAL_DATA, MAX_MESH_TERMINAL_SIDE, MAX_TERM_NAME } from '../limits/terminal.ts'
import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS, NONCE_BYTES } from '../limits/wire.ts'
import { PARTIES } from './exec.ts'
import { type Field, type ValueOf, bool, bytes, list, nullable, range, record, text, uint } from './schema.ts'

/** Domain of the agent key's signature over the exact bytes of an encoded `exec-terminal-request`. */
export const EXEC_TERMINAL_REQUEST_DOMAIN = 'x0x-exec-terminal-request-v1'
/** Domain of the agent key's signature over the exact bytes of an encoded `exec-terminal-input`. */
export const EXEC_TERMINAL_INPUT_DOMAIN = 'x0x-exec-terminal-input-v1'

const side = range(1, MAX_MESH_TERMINAL_SIDE)
const TERM_NAME = new RegExp(`^[A-Za-z0-9._+-]{1,${MAX_TERM_NAME}}$`)

/** True for a name that the variable TERM may have on a target. It is looked up in a database of files there. */
export const isTermName = (name: string): boolean => TERM_NAME.test(name) && !name.startsWith('.')

const anyText = text(MAX_TERM_NAME)
export const termName: Field<string> = {
  ...anyText,
  fromCbor: (value, path) => {
    const name = anyText.fromCbor(value, path)
    if (!isTermName(name)) throw new AppError('malformed', `${path}: not a valid terminal type`)
    return name
  },
}

/** Size and type of a terminal, as in each message that has them. */
export const TERMINAL_FIELDS = { columns: side, rows: side, term: termName }

/**
 * A request to run a command on a terminal. Signed and bound to one stream of one host, like a Request. The input follows in signed frames.
 */
export const execTerminalRequest = record('exec-terminal-request', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds, as evidence only, because the nonce proves freshness. */
  created_at_ms: uint(),
  argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
  /** As in a Request. */
  timeout_ms: nullable(uint()),
  clamp: bool,
  ...TERMINAL_FIELDS,
})
export type ExecTerminalRequest = ValueOf<typeof execTerminalRequest>

const terminalSize = record('terminal-size', { columns: side, rows: side })
export type WireTerminalSize = ValueOf<typeof terminalSize>

/** Null if the size does not change. */
export const newTerminalSize = nullable(terminalSize)
/** Typed bytes of one frame. */
export const typedBytes = bytes(0, MAX_TERMINAL_DATA)

/**
 * What the user of a terminal typed, in order, and its new size. The executor process of the requester signs it, so that the network
 * process of the target cannot type.
 */
export const execTerminalInput = record('exec-terminal-input', {
  /** Digest of the exact bytes of the request. */
  request_sha256: bytes(32),
  /** Counts from 0 without gaps. */
  seq: uint(),
  data: typedBytes,
  size: newTerminalSize,
})
export type ExecTerminalInput = ValueOf<typeof execTerminalInput>
