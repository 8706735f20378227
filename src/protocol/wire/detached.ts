import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS, MAX_TEXT, NONCE_BYTES } from '../limits/wire.ts'
import { PARTIES } from './exec.ts'
import { type ValueOf, bool, bytes, list, nullable, oneOf, record, text, uint } from './schema.ts'

/** Domain of the agent key's signature over the exact bytes of an encoded `exec-detach-request`. */
export const EXEC_DETACH_REQUEST_DOMAIN = 'x0x-exec-detach-request-v1'
/** Domain of the agent key's signature over the exact bytes of an encoded `exec-detached-ask`. */
export const EXEC_DETACHED_ASK_DOMAIN = 'x0x-exec-detached-ask-v1'

/** A Request for a detached run. It has no lease and no stdin, and its target stores the output. */
export const execDetachRequest = record('exec-detach-request', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds, as evidence only, because the nonce proves freshness. */
  created_at_ms: uint(),
  argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
  /** As in a Request. */
  cwd: nullable(text(MAX_TEXT)),
  /** True to reduce a lifetime or output above its maximum instead of denying the run. */
  clamp: bool,
  /** Milliseconds from start after which the run is ended, or null for the responder's maximum. */
  lifetime_ms: nullable(uint()),
  /** Stored bytes of both streams together, or null for the responder's maximum. */
  keep_bytes: nullable(uint()),
})
export type ExecDetachRequest = ValueOf<typeof execDetachRequest>

/** Operations on an own detached run. */
export const DETACHED_ASKS = ['state', 'attach', 'cancel', 'forget'] as const
export type DetachedAsk = (typeof DETACHED_ASKS)[number]

/**
 * Queries the detached run `request_id`. Signed and bound to one stream of one host, like a Request. Therefore another host rejects it, and
 * the host rejects it later or after a restart.
 */
export const execDetachedAsk = record('exec-detached-ask', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  /** Epoch milliseconds, as evidence only. */
  created_at_ms: uint(),
  ask: oneOf(DETACHED_ASKS),
  /** In an `attach`, the number of stored output bytes to skip, both streams together in the order of their arrival. */
  from: uint(),
})
export type ExecDetachedAsk = ValueOf<typeof execDetachedAsk>
