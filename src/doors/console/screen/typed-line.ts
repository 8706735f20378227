/** Of one line, in characters: what a mode takes is far shorter. */
const MAX_LINE = 512
const ESCAPE = '\u001b'
const ERASE = ['\u007f', '\b']
const CLEAR = '\u0015'
const CTRL_C = '\u0003'

/** What became of a line by what was typed. */
export type Typed = 'goes_on' | 'done' | 'left'

/** A line that a human types, key by key or at once. */
export class TypedLine {
  #text = ''

  get text(): string {
    return this.#text
  }

  /** A key with a name, and Ctrl-C, leave it; what does not show itself is no part of it. */
  take(typed: string): Typed {
    if (typed.startsWith(ESCAPE) || typed.includes(CTRL_C)) return 'left'
    for (const character of typed) {
      if (character === '\r' || character === '\n') return 'done'
      if (ERASE.includes(character)) this.#text = this.#text.slice(0, -1)
      else if (character === CLEAR) this.#text = ''
      else if (/^[\x20-\x7e]$/.test(character) && this.#text.length < MAX_LINE) this.#text += character
    }
    return this.#text === '' ? 'left' : 'goes_on'
  }
}
