/** States of a reader of terminal output (ECMA-48, section 5). */
type State = 'text' | 'escape' | 'intermediate' | 'sequence' | 'string'

/** The end of a run of characters, and the longest run. A longer run is read as text. */
interface Run {
  readonly end: RegExp
  readonly max: number
}

const RUNS: Readonly<Record<Exclude<State, 'escape'>, Run>> = {
  // Every control of C0, DEL and C1, except tab and line feed.
  // oxlint-disable-next-line no-control-regex
  text: { end: /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, max: Infinity },
  intermediate: { end: /[^ -/]/g, max: 256 },
  sequence: { end: /[^ -?]/g, max: 256 },
  // BEL and ST close a string; so does any other control, above all a line end.
  // oxlint-disable-next-line no-control-regex
  string: { end: /[\u0000-\u0008\u000a-\u001f\u007f-\u009f]/g, max: 4_096 },
}

/** Characters after ESC, and their C1 equivalents, that start a control sequence, or a string that lasts until its terminator. */
const CSI = '[\u009b'
const STRINGS = 'PX]^_\u0090\u0098\u009d\u009e\u009f'
const ESC = '\u001b'
const BEL = '\u0007'

/** What a character starts, or null if neither a control sequence nor a string. */
const begunBy = (character: string): 'sequence' | 'string' | null =>
  CSI.includes(character) ? 'sequence' : STRINGS.includes(character) ? 'string' : null

const within = (character: string, from: string, to: string): boolean => character >= from && character <= to

/** Receives the parts of terminal output in order. Strings, and escapes with intermediates, are left out. */
export interface TerminalParts {
  /** Printable text with tabs and line feeds. */
  text(text: string): void
  /** A control of C0, DEL or C1 that starts nothing. */
  control(character: string): void
  /** ESC followed by this character. */
  escape?(final: string): void
  /** A control sequence; `parameters` include its intermediates. */
  sequence?(parameters: string, final: string): void
}

/**
 * Separates text from control sequences in terminal output. It holds a state and at most 256 characters of a sequence. An unclosed string
 * ends with its line, or after 4096 characters.
 */
export class TerminalReader {
  readonly #to: TerminalParts
  #state: State = 'text'
  /** Characters of the sequence or string that is being skipped. */
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

  /** Treats what follows as text. */
  reset(): void {
    this.#enter('text')
  }

  /** Consumes characters of the current state and returns where they end. */
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

  /** Consumes the character that ends a run. False means that the sequence is unfinished, and the character is read as text. */
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
 * Removes control sequences from terminal output and keeps what a person would read: text, tabs and line feeds. Each line end (CR LF, CR,
 * NEL) becomes one line feed, and CRs in a row count once.
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
  /** The last character was a CR. The next one shows whether a line feed belongs to it. */
  #carriageReturn = false

  push(text: string): string {
    this.#reader.push(text)
    return this.#taken()
  }

  /** Returns the held-back text at the end of input. */
  end(): string {
    this.#endLine()
    return this.#taken()
  }

  #taken(): string {
    const out = this.#out
    this.#out = ''
    return out
  }

  /** Ends the line at a held-back CR, unless a line feed follows. */
  #endLine(next?: string): void {
    if (this.#carriageReturn && next !== '\n') this.#out += '\n'
    this.#carriageReturn = false
  }
}
