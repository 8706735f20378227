import { MAX_ADDRESS_TEXT, MAX_NAME } from '../limits/wire.ts'
import { bytes, id32, list, literal, record, text, uint } from './schema.ts'

export const INVITATION_PREFIX = 'x0x://invite/'
export const REPLY_PREFIX = 'x0x://reply/'

/** A person copies the line through terminals that accept a thousand characters. */
export const MAX_INVITED_ADDRESSES = 4
export const INVITATION_NONCE_BYTES = 16
export const INVITATION_MS = 60 * 60 * 1000

/** Claims of one side. They are not trusted before both users compare the codes. */
const side = {
  version: literal(1),
  agent_id: id32,
  machine_id: id32,
  /** Name that the agent gives itself. */
  name: text(MAX_NAME),
  /** Without the `/p2p/…` of the machine, which follows from its ID. */
  addresses: list(text(MAX_ADDRESS_TEXT), MAX_INVITED_ADDRESSES),
  nonce: bytes(INVITATION_NONCE_BYTES),
} as const

export const invitation = record('invitation', { ...side, expires_at_ms: uint() })

/** `invitation_sha256` is the digest of the encoded invitation that it answers. */
export const invitationReply = record('invitation-reply', { ...side, invitation_sha256: bytes(32) })
