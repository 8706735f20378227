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
/** Domain of a card that is handed over by a human. */
export const CARD_DOMAIN = 'x0x-card-v1'
/** Domain of the same body when daemons hand it to one another. It is valid for a day, and is not a card that people exchange. */
export const ANNOUNCE_DOMAIN = 'x0x-announce-v1'
/**
 * gossipsub topic of presences. A malformed message there counts against the neighbour that brings it, also a trusted one.
 * So a change of the format changes the version of `presence`, which older daemons ignore, or the number of this topic.
 */
export const PRESENCE_TOPIC = 'x0x/presence/1'
/** Asks a machine for a card that it has: a `card-ask`, then the card as it was signed, or nothing. */
export const CARD_PROTOCOL = '/x0x/card/1'
/** mDNS service (RFC 6763) under which daemons find one another on the local network; other libp2p programs do not. */
export const MDNS_SERVICE = '_x0x._udp.local'

/** Who an agent is and where it can be reached, in its own words. */
export const cardBody = record('card-body', {
  version: literal(1),
  agent_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
  machine_id: id32,
  /** What the agent calls itself; never trusted, never a contact's name without the operator. */
  name: text(MAX_NAME),
  addresses: list(text(MAX_ADDRESS_TEXT), MAX_CARD_ADDRESSES),
  issued_at_ms: uint(),
  expires_at_ms: uint(),
})
export type CardBody = ValueOf<typeof cardBody>

/** `body` is an encoded `card-body`; the signature is the agent key's over the domain and those bytes. */
export const signedCard = record('signed-card', { body: bytes(1, MAX_CARD_BYTES), signature: bytes(AGENT_SIGNATURE_BYTES) })
export type SignedCard = ValueOf<typeof signedCard>

const PRESENCE_VERSION = 1

/**
 * That a machine is there, said by itself: gossipsub's signature is that of its key. `agent_id` is a mere claim, which the
 * card proves; `card_issued_at_ms` says from when on a card is the one to have.
 */
export const presence = record('presence', {
  version: literal(PRESENCE_VERSION),
  agent_id: id32,
  card_issued_at_ms: uint(),
  said_at_ms: uint(),
  /** For so long it holds, from when it was said. */
  holds_secs: range(1, MAX_PRESENCE_SECS),
  /** Where the machine can be reached, without the `/p2p/…` that names it. */
  addresses: list(text(MAX_ADDRESS_TEXT), MAX_PRESENCE_ADDRESSES),
})
export type Presence = ValueOf<typeof presence>

/** Whose card is asked for. */
export const cardAsk = record('card-ask', { version: literal(1), machine_id: id32 })

/** Whether this is an encoded presence of a later version than ours. */
export const isOfLaterPresence = (encoded: Uint8Array): boolean => {
  const body = attempt(() => decodeCbor(encoded))
  return Array.isArray(body) && typeof body[0] === 'number' && body[0] > PRESENCE_VERSION
}
