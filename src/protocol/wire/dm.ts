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

/** A message between two agents, encrypted with the stream's keys. `request_id` groups related messages. */
export const envelope = record('dm-envelope', {
  version: literal(1),
  from_agent: id32,
  to_agent: id32,
  request_id: requestId,
  created_at_ms: uint(),
  /** Twelve bytes that name the owner, then the owner's message. */
  body: bytes(12, MAX_SEALED_FRAME),
})

const prefix = (label: string): Uint8Array => new TextEncoder().encode(label)

/** Length of all body prefixes. */
export const BODY_PREFIX_BYTES = 12
/** Prefixes of the bodies that the dispatcher routes, in addition to `EXEC_PREFIX`. */
export const MESSAGE_PREFIX = prefix('x0x-mesg-v1\0')
export const RECEIPT_PREFIX = prefix('x0x-rcpt-v1\0')
export const REVOCATIONS_PREFIX = prefix('x0x-revk-v1\0')

/** A generic direct message, shown on `/direct/events`. */
export const directMessage = record('direct-message', {
  content_type: text(MAX_NAME),
  payload: bytes(0, MAX_DIRECT_PAYLOAD),
})
export type DirectMessage = ValueOf<typeof directMessage>

/** The receiver's reply. The message was delivered to a listener, accepted without a listener, or refused. */
export const directReceipt = record('direct-receipt', { outcome: oneOf(['delivered', 'no_listener', 'rejected']) })
export type DirectReceipt = ValueOf<typeof directReceipt>

export const PING_PREFIX = prefix('x0x-ping-v1\0')
export const PONG_PREFIX = prefix('x0x-pong-v1\0')

/** Tests whether the peer answers. One for each stream. */
export const directPing = record('direct-ping', {
  program_version: text(MAX_NAME),
})

/** The only reply to it, for accepted agents alone. */
export const directPong = record('direct-pong', {
  program_version: text(MAX_NAME),
  /** Clock of the receiver when the ping arrived. */
  received_at_ms: uint(),
})

/** Sent when a link opens. */
export const revocationList = record('revocation-list', { items: list(bytes(1, MAX_CARD_BYTES), MAX_REVOCATIONS_PER_LINK) })

export const REVOCATION_DOMAIN = 'x0x-revocation-v1'
/** An agent's statement about its own key (`machine_id` null) or its presence on one machine. */
export const revocationBody = record('revocation-body', {
  version: literal(1),
  agent_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
  machine_id: nullable(id32),
  issued_at_ms: uint(),
})
export const revocation = record('revocation', { body: bytes(1, MAX_CARD_BYTES), signature: bytes(AGENT_SIGNATURE_BYTES) })

export const SUCCESSION_DOMAIN = 'x0x-succession-v1'
/** A key's statement that another key replaces it. Both sign it. Part of a `revocation-list`. */
export const successionBody = record('succession-body', {
  version: literal(1),
  old_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
  new_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
  /** Machine of the statement. It is valid only over a link that proves this machine and the new key. */
  machine_id: id32,
  issued_at_ms: uint(),
})
export const succession = record('succession', {
  body: bytes(1, MAX_CARD_BYTES),
  old_signature: bytes(AGENT_SIGNATURE_BYTES),
  new_signature: bytes(AGENT_SIGNATURE_BYTES),
})
/** Distinguished from a revocation by the number of fields. */
export const isSuccession = (item: Uint8Array): boolean => item[0] === 0x83
