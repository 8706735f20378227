import { equalBytes, hmac, randomBytes, sha256 } from '../identity/hash.ts'
import {
  type DeskDirection,
  type DeskRole,
  APPROVAL_CLIENT_KEY_TEXT,
  type SealedLine,
  readSealed,
  sealedText,
} from '../protocol/desk/messages.ts'
import { fromHex, toHex } from '../protocol/ids.ts'
import { DESK_FRESH_MS, MAX_DESK_NONCES } from '../protocol/limits/approvals.ts'
import { jsonText } from '../protocol/lines.ts'

const NONCE_BYTES = 16
const HELLO_BYTES = 32

const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)

/** 16 random bytes in base64url, for lines, answers and IDs. */
export const newNonce = (): string => base64url(randomBytes(NONCE_BYTES))
export const newHelloNonce = (): string => base64url(randomBytes(HELLO_BYTES))

/** Key of an approver, from which the operator key cannot be derived. */
export const approverKeyOf = (operatorKey: Uint8Array): Uint8Array => hmac(operatorKey, utf8(APPROVAL_CLIENT_KEY_TEXT))

const macOf = (
  key: Uint8Array,
  role: DeskRole,
  direction: DeskDirection,
  serverNonce: string,
  line: Omit<SealedLine, 'mac'>,
): Uint8Array => {
  const { body, nonce, ts } = line
  const text = sealedText(role, direction, { server_nonce: serverNonce, nonce, ts, body_sha256: toHex(sha256(utf8(body))) })
  return hmac(key, utf8(text))
}

export interface SealInit {
  readonly key: Uint8Array
  readonly role: DeskRole
  /** Nonce of the service's `hello`. It binds every line to one connection. */
  readonly serverNonce: string
  /** Which end of the connection this is. */
  readonly side: 'desk' | 'client'
  readonly now: () => number
}

/** A line is refused if it is malformed, has a wrong MAC, is not fresh, or is a repetition. */
export type Unsealed = { readonly kind: 'body'; readonly body: Uint8Array } | { readonly kind: 'refused'; readonly problem: string }

const refused = (problem: string): Unsealed => ({ kind: 'refused', problem })

/** Seals outgoing lines and opens incoming ones, for one end of one connection. */
export class Seal {
  readonly #init: SealInit
  /** Nonces that were received, each with the time until which it would be accepted again. */
  readonly #seen = new Map<string, number>()

  constructor(init: SealInit) {
    this.#init = init
  }

  line(body: object): string {
    const { key, role, serverNonce, side, now } = this.#init
    const unsigned = { body: JSON.stringify(body), nonce: newNonce(), ts: now() }
    const mac = toHex(macOf(key, role, side === 'desk' ? 'from_desk' : 'to_desk', serverNonce, unsigned))
    return `${jsonText({ ...unsigned, mac })}\n`
  }

  open(line: Uint8Array): Unsealed {
    const sealed = readSealed(line)
    if (typeof sealed === 'string') return refused(sealed)
    const { key, role, serverNonce, side, now } = this.#init
    const expected = macOf(key, role, side === 'desk' ? 'to_desk' : 'from_desk', serverNonce, sealed)
    if (!equalBytes(expected, fromHex(sealed.mac))) return refused('its MAC is wrong')
    const at = now()
    if (Math.abs(at - sealed.ts) > DESK_FRESH_MS) return refused('its time differs too much from the current time')
    return this.#isNew(sealed.nonce, at) ? { kind: 'body', body: utf8(sealed.body) } : refused('it was received before')
  }

  #isNew(nonce: string, now: number): boolean {
    for (const [old, until] of this.#seen) {
      if (until > now) break
      this.#seen.delete(old)
    }
    if (this.#seen.has(nonce) || this.#seen.size >= MAX_DESK_NONCES) return false
    this.#seen.set(nonce, now + 2 * DESK_FRESH_MS)
    return true
  }
}
