import { TerminalReader } from './terminal-reader.ts'

const NEL = '\u0085'

/**
 * Takes out of what a program wrote for a terminal everything that a terminal obeys, and leaves what a person would
 * have read: text, tabs and line feeds. Each line end (CR LF, CR, NEL) is one line feed, and of CRs in a row only one
 * counts.
 */
export class TerminalFilter {
  readonly #reader = new TerminalReader({
    text: (text) => {
      this.#endLine(text[0])
      this.#out += text
    },
    control: (character) => {
      if (character === NEL) {
        this.#endLine(character)
        this.#out += '\n'
      } else if (character === '\r') this.#carriageReturn = true
    },
  })
  #out = ''
  /** A CR came last: whether a line feed belongs to it, the next character says. */
  #carriageReturn = false

  push(text: string): string {
    this.#reader.push(text)
    return this.#taken()
  }

  /** What was held back, once no more comes. */
  end(): string {
    this.#endLine()
    return this.#taken()
  }

  #taken(): string {
    const out = this.#out
    this.#out = ''
    return out
  }

  /** A CR before `next` was a line end by itself, unless a line feed is `next`. */
  #endLine(next?: string): void {
    if (this.#carriageReturn && next !== '\n') this.#out += '\n'
    this.#carriageReturn = false
  }
}
