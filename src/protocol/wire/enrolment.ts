import {
  ENROL_ATTEMPT_BYTES,
  ENROL_KEY_ID_BYTES,
  ENROL_MAC_BYTES,
  ENROL_SECRET_BYTES,
  MAX_ENROL_ACL,
  MAX_ENROL_ADDRESSES,
  MAX_ENROL_MESSAGE,
} from '../limits/enrolment.ts'
import { AGENT_SIGNATURE_BYTES, MAX_ADDRESS_TEXT, MAX_CARD_ADDRESSES, MAX_FRAME_DATA, MAX_NAME, NONCE_BYTES } from '../limits/wire.ts'
import { ENROL_REFUSALS } from '../reasons.ts'
import { PARTIES } from './exec.ts'
import { type ValueOf, bool, bytes, id32, list, oneOf, record, text, uint, union } from './schema.ts'

/** Beginning of a token, with the version of its content. */
export const ENROL_TOKEN_PREFIX = 'x0xe1.'

/** The first twelve bytes of a direct message that belongs to enrolment. */
export const ENROL_PREFIX: Uint8Array = new TextEncoder().encode('x0x-enrl-v1\0')

/** Domain of the agent key's signature over the exact bytes of an encoded `enrol-grant`. */
export const ENROL_GRANT_DOMAIN = 'x0x-enrol-grant-v1'

/** Content of a token: the only operator that its bearer accepts, and the secret that proves the bearer to that operator. */
export const enrolToken = record('enrol-token', {
  agent_id: id32,
  machine_id: id32,
  secret: bytes(ENROL_SECRET_BYTES),
  /** Epoch milliseconds of the operator's clock. */
  expires_at_ms: uint(),
  /** The operator sends ACL entries. */
  acl: bool,
  /** Without the `/p2p/…` of the machine, which follows from its ID. */
  addresses: list(text(MAX_ADDRESS_TEXT), MAX_ENROL_ADDRESSES),
})

/**
 * A host asks for its enrolment, or reports that the granted one is in force (`done`). It quotes the responder's nonce of this stream, so no
 * other stream, machine or daemon accepts it.
 */
export const enrolRequest = record('enrol-request', {
  ...PARTIES,
  stream_nonce: bytes(NONCE_BYTES),
  key_id: bytes(ENROL_KEY_ID_BYTES),
  step: oneOf(['ask', 'done']),
  /** Differs for each process of the host. */
  attempt: bytes(ENROL_ATTEMPT_BYTES),
  /** Name that the host prefers, or must have if `name_required`. */
  name: text(MAX_NAME),
  name_required: bool,
  addresses: list(text(MAX_ADDRESS_TEXT), MAX_CARD_ADDRESSES),
})
export type EnrolRequest = ValueOf<typeof enrolRequest>

/** What the operator grants to one host, as an answer to one request. */
export const enrolGrant = record('enrol-grant', {
  ...PARTIES,
  /** SHA-256 of the exact bytes of the request. */
  request_sha256: bytes(32),
  key_id: bytes(ENROL_KEY_ID_BYTES),
  attempt: bytes(ENROL_ATTEMPT_BYTES),
  /** Name of the host in the operator's contacts. */
  name: text(MAX_NAME),
  operator_name: text(MAX_NAME),
  /** ACL entries for the operator's agent and machine, or empty. */
  acl: text(MAX_ENROL_ACL),
})
export type EnrolGrant = ValueOf<typeof enrolGrant>

const mac = bytes(ENROL_MAC_BYTES)

/** Frames of an enrolment: one request and one answer on each stream. Each MAC is keyed with the secret of the token. */
export const enrolFrame = union('enrol-frame', {
  /** `body` is an encoded `enrol-request`. */
  request: [0, { body: bytes(1, MAX_FRAME_DATA), mac }],
  /** Reply to `ask`. `body` is an encoded `enrol-grant`. */
  granted: [1, { body: bytes(1, MAX_FRAME_DATA), signature: bytes(AGENT_SIGNATURE_BYTES), mac }],
  /** Reply to `done`. */
  confirmed: [2, { request_sha256: bytes(32), mac }],
  /** Reply to both. `message` is a sentence for the host's log. */
  refused: [3, { reason: oneOf(ENROL_REFUSALS), message: text(MAX_ENROL_MESSAGE) }],
})
export type EnrolFrame = ValueOf<typeof enrolFrame>
