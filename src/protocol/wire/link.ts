import { AppError } from '../../base/errors.ts'
import {
  AGENT_PUBLIC_KEY_BYTES,
  AGENT_SIGNATURE_BYTES,
  KEM_CIPHERTEXT_BYTES,
  KEM_PUBLIC_KEY_BYTES,
  LINK_ID_BYTES,
  LINK_VERSION,
  MACHINE_SIGNATURE_BYTES,
  MAX_LINK_FRAME,
  NONCE_BYTES,
} from '../limits/wire.ts'
import { type ValueOf, bytes, id32, list, record, uint } from './schema.ts'

/** Throws `upgrade`, with the remedy as `data.next`, unless the peer lists this link version. `who` names the peer. */
export const demandLinkVersion = (versions: readonly number[], who = 'the other machine'): void => {
  if (versions.includes(LINK_VERSION)) return
  const theirs = Math.max(0, ...versions)
  const older = theirs < LINK_VERSION ? `on ${who}` : 'on this machine'
  throw new AppError('upgrade', `${who} uses version ${theirs} of the link protocol, and this machine version ${LINK_VERSION}`, {
    data: { offence: 'handshake_failed', next: `upgrade x0x ${older}, then start its x0xd again` },
  })
}

/** libp2p protocol of the handshake. Afterwards the stream carries the first direct messages. */
export const LINK_PROTOCOL = '/x0x/link/1'
/** libp2p protocol of all further streams of a link. */
export const DM_PROTOCOL = '/x0x/dm/1'

/** Domains of the four signatures, with role and kind of key, so that no signature can be reflected or mistaken for another. */
export const LINK_DOMAINS = {
  responder_agent: 'x0x-link-responder-agent-v1',
  responder_machine: 'x0x-link-responder-machine-v1',
  initiator_agent: 'x0x-link-initiator-agent-v1',
  initiator_machine: 'x0x-link-initiator-machine-v1',
} as const

/** HKDF-SHA-256 info labels. */
export const LINK_SECRET_INFO = 'x0x-link-secret-v1'
export const LINK_CONFIRM_RESPONDER_INFO = 'x0x-link-confirm-responder-v1'
export const LINK_CONFIRM_INITIATOR_INFO = 'x0x-link-confirm-initiator-v1'
export const STREAM_KEY_INFO = 'x0x-stream-key-v1'

/** Earlier releases list several versions. All releases can read the list, so both sides can tell which one is too old. */
const versions = list(uint(255), 8)
const signatures = { agent_signature: bytes(AGENT_SIGNATURE_BYTES), machine_signature: bytes(MACHINE_SIGNATURE_BYTES) }

/** Initiator to responder. */
export const linkM1 = record('link-m1', {
  versions,
  agent_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
  kem_public_key: bytes(KEM_PUBLIC_KEY_BYTES),
  nonce: bytes(NONCE_BYTES),
})
export type LinkM1 = ValueOf<typeof linkM1>

/** The responder's part that is signed with M1. Its nonce is also the nonce of this stream. */
export const linkM2Core = record('link-m2-core', {
  versions,
  agent_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
  kem_ciphertext: bytes(KEM_CIPHERTEXT_BYTES),
  nonce: bytes(NONCE_BYTES),
})
export type LinkM2Core = ValueOf<typeof linkM2Core>

/** Responder to initiator. `core` is an encoded `link-m2-core`. */
export const linkM2 = record('link-m2', { core: bytes(1, MAX_LINK_FRAME), ...signatures, mac: bytes(32) })
export type LinkM2 = ValueOf<typeof linkM2>

/** Initiator to responder. Encrypted frames may follow at once. */
export const linkM3 = record('link-m3', { ...signatures, mac: bytes(32) })

/**
 * Input of the handshake signatures, hashed with SHA-256. It has both machines as Noise authenticated them and all bytes sent so far. The
 * responder signs with `m2` = its encoded core. The initiator signs with `m2` = the whole encoded M2. The final transcript adds the encoded
 * M3's two signatures as `m3`.
 */
export const linkTranscript = record('link-transcript', {
  machine_initiator: id32,
  machine_responder: id32,
  m1: bytes(1, MAX_LINK_FRAME),
  m2: bytes(1, MAX_LINK_FRAME),
  m3: bytes(0, MAX_LINK_FRAME),
})

/** First frame on a `/x0x/dm/1` stream, responder to opener. It has a fresh nonce of the executor. */
export const streamHello = record('stream-hello', { nonce: bytes(NONCE_BYTES) })
/** Opener's first frame, sent with its first encrypted one. It names the link whose secret is used, and has its own nonce. */
export const streamOpen = record('stream-open', { link_id: bytes(LINK_ID_BYTES), nonce: bytes(NONCE_BYTES) })
