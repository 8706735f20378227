import { replaceInvisible } from '../../base/visible-text.ts'

/** Invisible and yet part of what is read: layout, joiners of scripts and emoji with their variations, glyphs of private fonts. */
const LEGIBLE = /[\t\n\p{Co}]|\u200c|\u200d|\ufe0e|\ufe0f/u

const escapeOne = (character: string): string => {
  const code = character.codePointAt(0) ?? 0
  if (code <= 0xff) return `\\x${code.toString(16).padStart(2, '0')}`
  return code <= 0xffff ? `\\u${code.toString(16).padStart(4, '0')}` : `\\u{${code.toString(16)}}`
}

/** Foreign text as a terminal may show it: what it would obey or hide stands there as text, but a carriage return before a line feed. */
export const shown = (text: string): string =>
  replaceInvisible(text.replaceAll('\r\n', '\n'), (character) => (LEGIBLE.test(character) ? character : escapeOne(character)))

/** Foreign text on one line, such as a name: everything invisible stands there as text, but a tab. */
export const shownLine = (text: string): string =>
  replaceInvisible(text.replaceAll('\r\n', '\n'), (character) =>
    character === '\t' ? character : character === '\n' ? '\\n' : escapeOne(character),
  )

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
