import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS, MAX_TEXT, NONCE_BYTES } from '../limits/wire.ts'
import { PARTIES } from './exec.ts'
import { type ValueOf, bool, bytes, list, nullable, oneOf, record, text, uint } from './schema.ts'

/** Domain of the agent key's signature over the exact bytes of an encoded `exec-detach-request`. */
export const EXEC_DETACH_REQUEST_DOMAIN = 'x0x-exec-detach-request-v1'
/** Domain of the agent key's signature over the exact bytes of an encoded `exec-detached-ask`. */
export const EXEC_DETACHED_ASK_DOMAIN = 'x0x-exec-detached-ask-v1'

/** A Request for a run that outlives its caller: it has no lease and no stdin, and its output is kept over there. */
export const execDetachRequest = record('exec-detach-request', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds; evidence only, freshness comes from the nonce. */
  created_at_ms: uint(),
  argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
  /** As of a Request. */
  cwd: nullable(text(MAX_TEXT)),
  /** A lifetime or bytes above the cap are cut to it instead of being denied. */
  clamp: bool,
  /** Milliseconds from its start, at which it is ended; null = the responder's cap. */
  lifetime_ms: nullable(uint()),
  /** Bytes of output that are kept, both streams together; null = the responder's cap. */
  keep_bytes: nullable(uint()),
})
export type ExecDetachRequest = ValueOf<typeof execDetachRequest>

/** What may be asked about a detached run of one's own. */
export const DETACHED_ASKS = ['state', 'attach', 'cancel', 'forget'] as const
export type DetachedAsk = (typeof DETACHED_ASKS)[number]

/**
 * Asks about the detached run `request_id`. Signed and bound to one stream of one host, as a Request is, so that it means
 * nothing elsewhere, later, or after a restart.
 */
export const execDetachedAsk = record('exec-detached-ask', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds; evidence only. */
  created_at_ms: uint(),
  ask: oneOf(DETACHED_ASKS),
  /** Of `attach`: how many bytes of kept output are not wanted again, both streams together in the order in which they came. */
  from: uint(),
})
export type ExecDetachedAsk = ValueOf<typeof execDetachedAsk>
