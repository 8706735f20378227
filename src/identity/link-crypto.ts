import { AppError } from '../base/errors.ts'
import type { MachineId } from '../protocol/ids.ts'
import { LINK_ID_BYTES } from '../protocol/limits/wire.ts'
import {
  LINK_CONFIRM_INITIATOR_INFO,
  LINK_CONFIRM_RESPONDER_INFO,
  LINK_SECRET_INFO,
  STREAM_KEY_INFO,
  linkTranscript,
} from '../protocol/wire/link.ts'
import { hkdf, hmac, sha256 } from './hash.ts'
import type { OpaqueSecret } from './primitives-interface.ts'
import { primitives } from './primitives.ts'

/** Both ends of the connection, as Noise authenticated them. */
export interface LinkMachines {
  readonly machine_initiator: MachineId
  readonly machine_responder: MachineId
}

export interface LinkSignatures {
  readonly agent_signature: Uint8Array
  readonly machine_signature: Uint8Array
}

const KEY_BYTES = 32
const NONE = new Uint8Array(0)
const encoder = new TextEncoder()

const hash = (machines: LinkMachines, m1: Uint8Array, m2: Uint8Array, m3: Uint8Array): Uint8Array =>
  sha256(
    linkTranscript.encode({ machine_initiator: machines.machine_initiator, machine_responder: machines.machine_responder, m1, m2, m3 }),
  )

/** Both signatures have a fixed length, so their concatenation is unambiguous. */
const joined = (signatures: LinkSignatures): Uint8Array => Buffer.concat([signatures.agent_signature, signatures.machine_signature])

/** Hash that the responder signs under its two domains. It covers both machines, M1 and the core of M2. 32 bytes. */
export const responderTranscript = (machines: LinkMachines, m1: Uint8Array, m2Core: Uint8Array): Uint8Array =>
  hash(machines, m1, m2Core, NONE)

/** Hash that the initiator signs under its two domains. It covers both machines, M1 and the whole M2. 32 bytes. */
export const initiatorTranscript = (machines: LinkMachines, m1: Uint8Array, m2: Uint8Array): Uint8Array => hash(machines, m1, m2, NONE)

/** Hash of the finished handshake. It also covers the signatures of M3. 32 bytes. */
export const finalTranscript = (machines: LinkMachines, m1: Uint8Array, m2: Uint8Array, m3: LinkSignatures): Uint8Array =>
  hash(machines, m1, m2, joined(m3))

/** The link's secret. It is an HKDF of the KEM secret, salted with the two messages with keys and nonces. 32 bytes. */
export const linkSecret = (kemSecret: Uint8Array, m1: Uint8Array, m2Core: Uint8Array): Uint8Array =>
  // Each message is one CBOR item with a known end, so the concatenation is unambiguous.
  hkdf(kemSecret, sha256(m1, m2Core), encoder.encode(LINK_SECRET_INFO), KEY_BYTES)

const confirmation = (secret: Uint8Array, info: string, ...covered: readonly Uint8Array[]): Uint8Array =>
  hmac(hkdf(secret, NONE, encoder.encode(info), KEY_BYTES), ...covered)

/** MAC of M2. It proves that the responder has the secret and sent these signatures. `transcript` is the responder's. */
export const responderMac = (secret: Uint8Array, transcript: Uint8Array, signatures: LinkSignatures): Uint8Array =>
  confirmation(secret, LINK_CONFIRM_RESPONDER_INFO, transcript, joined(signatures))

/** MAC of M3. It proves that the initiator has the secret and received what the responder sent. `transcript` is the final one. */
export const initiatorMac = (secret: Uint8Array, transcript: Uint8Array): Uint8Array =>
  confirmation(secret, LINK_CONFIRM_INITIATOR_INFO, transcript)

/** ID of a link on the wire. `transcript` is the final one. */
export const linkIdOf = (transcript: Uint8Array): Uint8Array => transcript.slice(0, LINK_ID_BYTES)

export interface StreamKeys {
  /** Key for data of the stream's opener. */
  readonly opener: Uint8Array
  /** Key for data of the stream's responder. */
  readonly responder: Uint8Array
}

/**
 * The two keys of one stream of a link. On the handshake's stream, the opener is the initiator and the nonces are those of M1 and M2. On
 * other streams, either side of the link may be the opener. The nonces are those of StreamHello (`responderNonce`) and StreamOpen
 * (`openerNonce`). `transcript` is the final one.
 */
export const streamKeys = (secret: Uint8Array, transcript: Uint8Array, responderNonce: Uint8Array, openerNonce: Uint8Array): StreamKeys => {
  const key = (direction: string): Uint8Array =>
    hkdf(secret, transcript, Buffer.concat([encoder.encode(`${STREAM_KEY_INFO}\0${direction}\0`), responderNonce, openerNonce]), KEY_BYTES)
  return { opener: key('opener'), responder: key('responder') }
}

const NONCE_BYTES = 12
const COUNTER_AT = 4

/** Nonces that never repeat. They have four zero bytes and a 64-bit counter, as in RFC 8439 §2.8 with a fixed part of zero. */
export class NonceCounter {
  readonly #nonce = new Uint8Array(NONCE_BYTES)
  readonly #view = new DataView(this.#nonce.buffer)
  #next: number

  constructor(first = 0) {
    this.#next = first
  }

  /** The next nonce, valid until the following call. Throws when the counter is exhausted, and never wraps. */
  take(): Uint8Array {
    if (this.#next >= Number.MAX_SAFE_INTEGER) throw new AppError('internal', 'the nonces of a stream key are used up')
    this.#view.setBigUint64(COUNTER_AT, BigInt(this.#next++))
    return this.#nonce
  }
}

/** Encrypts one direction of one stream, frame by frame, under one ChaCha20-Poly1305 key. */
export class SealingKey {
  readonly #key: OpaqueSecret<'aead'>
  readonly #nonces = new NonceCounter()

  /** `key` has 32 bytes, and is used only for this direction of this stream. */
  constructor(key: Uint8Array) {
    this.#key = primitives().aeadKey(key)
  }

  /** Ciphertext and 16-byte tag of the concatenated parts, in parts that the caller writes one after the other. */
  seal(...plaintext: readonly Uint8Array[]): Uint8Array[] {
    return primitives().aeadSeal(this.#key, this.#nonces.take(), plaintext)
  }
}

/** Decrypts one direction of one stream, in order and without gaps. */
export class OpeningKey {
  readonly #key: OpaqueSecret<'aead'>
  readonly #nonces = new NonceCounter()
  #broken = false

  constructor(key: Uint8Array) {
    this.#key = primitives().aeadKey(key)
  }

  /** Throws `malformed` for anything but the next frame exactly as encrypted, and for all later input. */
  open(sealed: Uint8Array): Uint8Array {
    const plaintext = this.#broken ? null : primitives().aeadOpen(this.#key, this.#nonces.take(), sealed)
    if (plaintext !== null) return plaintext
    this.#broken = true
    throw new AppError('malformed', 'a sealed frame does not open')
  }
}
