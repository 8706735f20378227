/** Where a text stands in what a terminal would obey (ECMA-48, section 5). */
type State = 'text' | 'escape' | 'intermediate' | 'sequence' | 'string'

/** Characters after which a sequence, or a string that is not closed, counts as none: what follows is text. */
const MAX_SEQUENCE = 256
const MAX_STRING = 4_096

/** All that is not plain text: C0 but a tab and a line feed, DEL, C1. */
// oxlint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g

/** Behind ESC, and the same as one character of C1: a control sequence; a string that goes on to its terminator. */
const CSI = ['[', '\u009b']
const STRINGS = ['P', 'X', ']', '^', '_', '\u0090', '\u0098', '\u009d', '\u009e', '\u009f']
const ESC = '\u001b'
const BEL = '\u0007'
const NEL = '\u0085'

const within = (character: string, from: string, to: string): boolean => character >= from && character <= to

/**
 * Takes out of what a program wrote for a terminal everything that a terminal obeys, and leaves what a person would
 * have read: text, tabs and line feeds. Each line end (CR LF, CR, NEL) is one line feed, and of CRs in a row only one
 * counts. Never holds more than a state and a count: a string that nothing closes ends with its line, or after 4096
 * characters.
 */
export class TerminalFilter {
  #state: State = 'text'
  /** Characters of the sequence or string that is being passed over. */
  #passed = 0
  /** A CR came last: whether it is half of a line end, the next character says. */
  #carriageReturn = false

  push(text: string): string {
    let out = ''
    for (let at = 0; at < text.length;) {
      if (this.#state === 'text') {
        const plain = this.#plain(text, at)
        if (plain > at) out += this.#lineEnd(text[at]!) + text.slice(at, plain)
        at = plain
        if (at === text.length) break
      }
      out += this.#step(text[at]!)
      at += 1
    }
    return out
  }

  /** What was held back, once no more comes. */
  end(): string {
    return this.#lineEnd('')
  }

  /** Where plain text that begins at `at` ends. */
  #plain(text: string, at: number): number {
    CONTROL.lastIndex = at
    return CONTROL.exec(text)?.index ?? text.length
  }

  /** The line end that a CR before `next` was, if it was one. */
  #lineEnd(next: string): string {
    const ends = this.#carriageReturn && next !== '\n'
    this.#carriageReturn = false
    return ends ? '\n' : ''
  }

  /** One character that is a control, or stands in a sequence. */
  #step(character: string): string {
    switch (this.#state) {
      case 'text':
        return this.#control(character)
      case 'escape':
        return this.#escaped(character)
      case 'intermediate':
        return within(character, ' ', '/') ? this.#pass(MAX_SEQUENCE) : within(character, '0', '~') ? this.#leave() : this.#again(character)
      case 'sequence':
        return within(character, ' ', '?') ? this.#pass(MAX_SEQUENCE) : within(character, '@', '~') ? this.#leave() : this.#again(character)
      case 'string':
        // Text and tabs belong to the string; BEL and ST close it; whatever else a terminal obeys, a line end first of all, ends it as well.
        return character === '\t' || (character >= ' ' && !within(character, '\u007f', '\u009f'))
          ? this.#pass(MAX_STRING)
          : character === BEL
            ? this.#leave()
            : this.#again(character)
    }
  }

  #control(character: string): string {
    if (character === '\n') return this.#lineEnd(character) + character
    if (character === '\r') {
      this.#carriageReturn = true
      return ''
    }
    if (character === NEL) return `${this.#lineEnd(character)}\n`
    if (character === ESC) this.#enter('escape')
    else if (CSI.includes(character)) this.#enter('sequence')
    else if (STRINGS.includes(character)) this.#enter('string')
    return within(character, '\t', '\t') || within(character, ' ', '~') || character > '\u009f' ? this.#lineEnd(character) + character : ''
  }

  #escaped(character: string): string {
    if (CSI.includes(character)) return this.#enter('sequence')
    if (STRINGS.includes(character)) return this.#enter('string')
    if (within(character, ' ', '/')) return this.#enter('intermediate')
    return within(character, '0', '~') ? this.#leave() : this.#again(character)
  }

  #enter(state: State): '' {
    this.#state = state
    this.#passed = 0
    return ''
  }

  #leave(): '' {
    return this.#enter('text')
  }

  /** The character belongs to what is passed over. */
  #pass(max: number): '' {
    this.#passed += 1
    return this.#passed < max ? '' : this.#leave()
  }

  /** The sequence ends here unfinished, and the character is none of it. */
  #again(character: string): string {
    this.#leave()
    return this.#control(character)
  }
}
