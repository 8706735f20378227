/**
 * What a terminal would obey instead of show: C0 but tab and line feed, DEL, C1, line separators and
 * the marks that reorder text (Unicode UAX #9). Carriage return goes through only before a line feed.
 */
// oxlint-disable-next-line no-control-regex -- control characters are what this is about
const OBEYED = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]/gu

const escapeOne = (character: string): string => {
  const code = character.codePointAt(0) ?? 0
  return code <= 0xff ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`
}

/** Foreign text as a terminal may show it: escapes stand there as text. */
export const shown = (text: string): string => text.replaceAll('\r\n', '\n').replaceAll(OBEYED, escapeOne)

/** Foreign text on one line. */
export const shownLine = (text: string): string => shown(text).replaceAll('\n', '\\n')

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
