import { attempt } from '../../base/errors.ts'
import {
  AGENT_PUBLIC_KEY_BYTES,
  AGENT_SIGNATURE_BYTES,
  MAX_ADDRESS_TEXT,
  MAX_CARD_ADDRESSES,
  MAX_CARD_BYTES,
  MAX_NAME,
  MAX_PRESENCE_ADDRESSES,
  MAX_PRESENCE_SECS,
} from '../limits/wire.ts'
import { decodeCbor } from './cbor.ts'
import { type ValueOf, bytes, id32, list, literal, range, record, text, uint } from './schema.ts'

export const CARD_LINK_PREFIX = 'x0x://agent/'
/** Domain of a card that people exchange. */
export const CARD_DOMAIN = 'x0x-card-v1'
/** Domain of the same body when daemons exchange it. It is valid for a day and is not a card for people. */
export const ANNOUNCE_DOMAIN = 'x0x-announce-v1'
/**
 * gossipsub topic of presences. A malformed message counts as a violation of the peer that forwards it, even a trusted one. A change of
 * format therefore needs a new version of `presence`, which older daemons ignore, or a new topic.
 */
export const PRESENCE_TOPIC = 'x0x/presence/1'
/** Protocol to fetch a card from a machine. The answer to a `card-ask` is the signed card, or an empty frame. */
export const CARD_PROTOCOL = '/x0x/card/1'
/** mDNS service (RFC 6763) by which daemons, and no other libp2p programs, find one another on the local network. */
export const MDNS_SERVICE = '_x0x._udp.local'

/** An agent's claims about its identity and addresses. */
export const cardBody = record('card-body', {
  version: literal(1),
  agent_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
  machine_id: id32,
  /** Name that the agent gives itself. Not trusted, and never a contact's name without the operator. */
  name: text(MAX_NAME),
  addresses: list(text(MAX_ADDRESS_TEXT), MAX_CARD_ADDRESSES),
  issued_at_ms: uint(),
  expires_at_ms: uint(),
})
export type CardBody = ValueOf<typeof cardBody>

/** `body` is an encoded `card-body`. The signature is the agent key's over the domain and those bytes. */
export const signedCard = record('signed-card', { body: bytes(1, MAX_CARD_BYTES), signature: bytes(AGENT_SIGNATURE_BYTES) })
export type SignedCard = ValueOf<typeof signedCard>

const PRESENCE_VERSION = 1

/** A machine announces itself, with gossipsub's signature by its key. The valid card (`card_issued_at_ms`) proves `agent_id`. */
export const presence = record('presence', {
  version: literal(PRESENCE_VERSION),
  agent_id: id32,
  card_issued_at_ms: uint(),
  said_at_ms: uint(),
  /** Validity in seconds since the time of the presence. */
  holds_secs: range(1, MAX_PRESENCE_SECS),
  /** Addresses of the machine without the `/p2p/…` part. */
  addresses: list(text(MAX_ADDRESS_TEXT), MAX_PRESENCE_ADDRESSES),
})
export type Presence = ValueOf<typeof presence>

export const cardAsk = record('card-ask', { version: literal(1), machine_id: id32 })

/** True for an encoded presence of a later version. */
export const isOfLaterPresence = (encoded: Uint8Array): boolean => {
  const body = attempt(() => decodeCbor(encoded))
  return Array.isArray(body) && typeof body[0] === 'number' && body[0] > PRESENCE_VERSION
}
