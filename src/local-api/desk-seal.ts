import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto'

import { AppError } from '../base/errors.ts'
import { HUMAN_KEY_TEXT, readSealed, sealedText, type DeskRole } from '../protocol/desk.ts'
import { DESK_FRESH_MS, MAX_DESK_NONCES } from '../protocol/desk-limits.ts'

const NONCE_BYTES = 16

/** The key of a human at the desk, of which the operator's key cannot be told. */
export const humanKey = (operatorKey: Uint8Array): Uint8Array => createHmac('sha256', operatorKey).update(HUMAN_KEY_TEXT).digest()

const refused = (problem: string): AppError => new AppError('malformed', `what answers is not the desk of this data directory: ${problem}`)

/** A client's side of one connection: every line that it sends has a MAC, and so must every line that comes. */
export class DeskSeal {
  readonly #init: { readonly key: Uint8Array; readonly role: DeskRole; readonly serverNonce: string }
  readonly #seen = new Set<string>()

  constructor(init: { readonly key: Uint8Array; readonly role: DeskRole; readonly serverNonce: string }) {
    this.#init = init
  }

  line(body: object): string {
    const text = JSON.stringify(body)
    const [nonce, ts] = [randomBytes(NONCE_BYTES).toString('base64url'), Date.now()]
    return `${JSON.stringify({ body: text, nonce, ts, mac: this.#mac('to_desk', text, nonce, ts).toString('hex') })}\n`
  }

  /** The text of a line's body. Throws `malformed` for one that the desk did not send, or not now, or sent before. */
  open(line: Uint8Array): string {
    const sealed = readSealed(line)
    if (typeof sealed === 'string') throw refused(sealed)
    const { body, nonce, ts, mac } = sealed
    if (!timingSafeEqual(this.#mac('from_desk', body, nonce, ts), Buffer.from(mac, 'hex'))) throw refused('its proof is wrong')
    if (Math.abs(Date.now() - ts) > DESK_FRESH_MS) throw refused('its line is old')
    if (this.#seen.has(nonce)) throw refused('its line came twice')
    this.#seen.add(nonce)
    const [oldest] = this.#seen
    if (this.#seen.size > MAX_DESK_NONCES && oldest !== undefined) this.#seen.delete(oldest)
    return body
  }

  #mac(direction: 'to_desk' | 'from_desk', body: string, nonce: string, ts: number): Buffer {
    const { key, role, serverNonce } = this.#init
    const text = sealedText(role, direction, {
      server_nonce: serverNonce,
      nonce,
      ts,
      body_sha256: createHash('sha256').update(body).digest('hex'),
    })
    return createHmac('sha256', key).update(text).digest()
  }
}
