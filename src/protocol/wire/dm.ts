import {
  AGENT_PUBLIC_KEY_BYTES,
  AGENT_SIGNATURE_BYTES,
  MAX_CARD_BYTES,
  MAX_DIRECT_PAYLOAD,
  MAX_NAME,
  MAX_REVOCATIONS_PER_LINK,
  MAX_SEALED_FRAME,
} from '../limits/wire.ts'
import { type ValueOf, bytes, id32, list, literal, nullable, oneOf, record, requestId, text, uint } from './schema.ts'

/** A message between two agents, sealed under the stream's keys. `request_id` groups what belongs together. */
export const envelope = record('dm-envelope', {
  version: literal(1),
  from_agent: id32,
  to_agent: id32,
  request_id: requestId,
  created_at_ms: uint(),
  /** Twelve bytes that say whose it is, then that owner's message. */
  body: bytes(12, MAX_SEALED_FRAME),
})

const prefix = (label: string): Uint8Array => new TextEncoder().encode(label)

/** Length of every body prefix. */
export const BODY_PREFIX_BYTES = 12
/** Prefixes of the bodies the dispatcher routes, beside `EXEC_PREFIX`. */
export const MESSAGE_PREFIX = prefix('x0x-mesg-v1\0')
export const RECEIPT_PREFIX = prefix('x0x-rcpt-v1\0')
export const REVOCATIONS_PREFIX = prefix('x0x-revk-v1\0')

/** A generic direct message, shown on `/direct/events`. */
export const directMessage = record('direct-message', {
  content_type: text(MAX_NAME),
  payload: bytes(0, MAX_DIRECT_PAYLOAD),
})
export type DirectMessage = ValueOf<typeof directMessage>

/** The receiver's answer: delivered to at least one listener, accepted without a listener, or refused. */
export const directReceipt = record('direct-receipt', { outcome: oneOf(['delivered', 'no_listener', 'rejected']) })
export type DirectReceipt = ValueOf<typeof directReceipt>

export const PING_PREFIX = prefix('x0x-ping-v1\0')
export const PONG_PREFIX = prefix('x0x-pong-v1\0')

/** Is it there? One for each stream. */
export const directPing = record('direct-ping', {
  /** Of the asker's program. */
  program_version: text(MAX_NAME),
})

/** The only answer to it, for accepted agents alone. */
export const directPong = record('direct-pong', {
  program_version: text(MAX_NAME),
  /** The wall clock over there when the ping came. */
  received_at_ms: uint(),
})

/** Handed over when a link opens. */
export const revocationList = record('revocation-list', { items: list(bytes(1, MAX_CARD_BYTES), MAX_REVOCATIONS_PER_LINK) })

export const REVOCATION_DOMAIN = 'x0x-revocation-v1'
/** An agent's word about its own key (`machine_id` null) or its own presence on one machine. */
export const revocationBody = record('revocation-body', {
  version: literal(1),
  agent_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
  machine_id: nullable(id32),
  issued_at_ms: uint(),
})
export const revocation = record('revocation', { body: bytes(1, MAX_CARD_BYTES), signature: bytes(AGENT_SIGNATURE_BYTES) })

export const SUCCESSION_DOMAIN = 'x0x-succession-v1'
/** A key's word that another one is its agent's from now on; both sign it. In a `revocation-list`. */
export const successionBody = record('succession-body', {
  version: literal(1),
  old_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
  new_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
  /** Where it was said: it counts only over a link that proves this machine and the new key. */
  machine_id: id32,
  issued_at_ms: uint(),
})
export const succession = record('succession', {
  body: bytes(1, MAX_CARD_BYTES),
  old_signature: bytes(AGENT_SIGNATURE_BYTES),
  new_signature: bytes(AGENT_SIGNATURE_BYTES),
})
/** Told from a revocation by the number of its fields. */
export const isSuccession = (item: Uint8Array): boolean => item[0] === 0x83
