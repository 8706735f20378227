/** Where a text stands in what a terminal would obey (ECMA-48, section 5). */
type State = 'text' | 'escape' | 'intermediate' | 'sequence' | 'string'

/** What ends a run of characters that belong together, and how many they may be, beyond which they count as none: what follows is text. */
interface Run {
  readonly end: RegExp
  readonly max: number
}

const RUNS: Readonly<Record<Exclude<State, 'escape'>, Run>> = {
  // Every control of C0, DEL and C1, but a tab and a line feed.
  // oxlint-disable-next-line no-control-regex
  text: { end: /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, max: Infinity },
  intermediate: { end: /[^ -/]/g, max: 256 },
  sequence: { end: /[^ -?]/g, max: 256 },
  // BEL and ST close a string; whatever else a terminal obeys, a line end first of all, ends it as well.
  // oxlint-disable-next-line no-control-regex
  string: { end: /[\u0000-\u0008\u000a-\u001f\u007f-\u009f]/g, max: 4_096 },
}

/** Behind ESC, and the same as one character of C1: a control sequence; a string that goes on to its terminator. */
const CSI = '[\u009b'
const STRINGS = 'PX]^_\u0090\u0098\u009d\u009e\u009f'
const ESC = '\u001b'
const BEL = '\u0007'

/** What a control sequence or a string begins with; null: neither. */
const begunBy = (character: string): 'sequence' | 'string' | null =>
  CSI.includes(character) ? 'sequence' : STRINGS.includes(character) ? 'string' : null

const within = (character: string, from: string, to: string): boolean => character >= from && character <= to

/** Takes the parts of a text for a terminal, in their order. Strings, and escapes with intermediates, are no part. */
export interface TerminalParts {
  /** Tabs, line feeds and what is no control. */
  text(text: string): void
  /** A control of C0, DEL or C1 that begins nothing. */
  control(character: string): void
  /** ESC and this character. */
  escape?(final: string): void
  /** A control sequence; `parameters` has its intermediates. */
  sequence?(parameters: string, final: string): void
}

/**
 * Tells what a program wrote for a terminal apart from what the terminal obeys. Holds no more than a state and a sequence of
 * 256 characters: a string that nothing closes ends with its line, or after 4096 characters.
 */
export class TerminalReader {
  readonly #to: TerminalParts
  #state: State = 'text'
  /** Characters of the sequence or string that is being passed over. */
  #passed = 0
  #parameters = ''

  constructor(to: TerminalParts) {
    this.#to = to
  }

  push(text: string): void {
    for (let at = 0; at < text.length;) {
      at = this.#run(text, at)
      if (at < text.length && this.#takes(text[at]!)) at += 1
    }
  }

  /** What follows is text, whatever has begun. */
  reset(): void {
    this.#enter('text')
  }

  /** Takes what belongs to the state; answers where that ends. */
  #run(text: string, from: number): number {
    if (this.#state === 'escape') return from
    const { end, max } = RUNS[this.#state]
    end.lastIndex = from
    const to = Math.min(end.test(text) ? end.lastIndex - 1 : text.length, from + max - this.#passed)
    if (to === from) return from
    if (this.#state === 'text') {
      this.#to.text(text.slice(from, to))
      return to
    }
    if (this.#state === 'sequence') this.#parameters += text.slice(from, to)
    this.#passed += to - from
    if (this.#passed < max) return to
    this.#enter('text')
    return this.#run(text, to)
  }

  /** Takes the character that ends a run. False: it ends a sequence that is unfinished, and is read as text. */
  #takes(character: string): boolean {
    switch (this.#state) {
      case 'text':
        return this.#control(character)
      case 'escape':
        return this.#escape(character)
      case 'intermediate':
        return this.#enter('text') && within(character, '0', '~')
      case 'sequence':
        return this.#sequence(character)
      case 'string':
        return this.#enter('text') && character === BEL
    }
  }

  #control(character: string): true {
    if (character === ESC) return this.#enter('escape')
    const begun = character > '\u007f' ? begunBy(character) : null
    if (begun !== null) return this.#enter(begun)
    this.#to.control(character)
    return true
  }

  #escape(character: string): boolean {
    const begun = begunBy(character)
    if (begun !== null) return this.#enter(begun)
    if (within(character, ' ', '/')) return this.#enter('intermediate')
    this.#enter('text')
    if (!within(character, '0', '~')) return false
    this.#to.escape?.(character)
    return true
  }

  #sequence(character: string): boolean {
    const parameters = this.#parameters
    this.#enter('text')
    if (!within(character, '@', '~')) return false
    this.#to.sequence?.(parameters, character)
    return true
  }

  #enter(state: State): true {
    this.#state = state
    this.#passed = 0
    this.#parameters = ''
    return true
  }
}

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
