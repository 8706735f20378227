import { shown } from '../../base/visible-text.ts'

/** One stream of foreign bytes for a terminal; characters may be cut anywhere between chunks. */
export class TerminalText {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  #held = ''

  push(bytes: Uint8Array): string {
    return this.#show(this.#held + this.#decoder.decode(bytes, { stream: true }))
  }

  /** What was held back, once no more comes. */
  end(): string {
    const rest = shown(this.#held + this.#decoder.decode())
    this.#held = ''
    return rest
  }

  #show(text: string): string {
    this.#held = text.endsWith('\r') ? '\r' : ''
    return shown(this.#held === '' ? text : text.slice(0, -1))
  }
}
