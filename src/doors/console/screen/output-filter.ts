import { TerminalReader } from '../../../base/terminal-reader.ts'
import { shown } from '../../../base/visible-text.ts'
import { CONSOLE_TERMINAL } from '../../../protocol/console.ts'
import { characterWidth } from './character-width.ts'

/** Marks upon one character. */
const MAX_MARKS = 8
/** Larger numbers mean the same on a terminal of 80 columns, and colours end here. */
const MAX_NUMBER = 255

// oxlint-disable-next-line no-control-regex
const NOT_ASCII = /[^\u0000-\u007f]/

/** VT, FF and NEL. */
const LINE_ENDS = '\u000b\f\u0085'
/** Moves the cursor, erases, inserts or deletes within the screen. */
const PLAIN_FINALS = 'ABCDEFGHfde`aJKXP@LMSTrIZb'
const { cols, rows } = CONSOLE_TERMINAL
/** Each counts rows, or repeats for a row at most. */
const MOST: Readonly<Record<string, number>> = { S: rows, T: rows, L: rows, M: rows, b: cols, I: 10, Z: 10 }

/** What the filter gives. */
export interface FilteredOutput {
  /** Visible text, BS, HT, LF, CR and a few sequences that concern this screen alone. */
  text(text: string): void
  /** The program erases its whole screen; what stood there was to be read. */
  clear(): void
}

const numbers = (parameters: string, most: number): string =>
  parameters.replaceAll(/\d+/g, (digits) => (digits.length > 4 ? String(most) : String(Math.min(Number(digits), most))))

/**
 * What a program wrote, cut down to what may reach the terminal that holds its screen: no modes, no strings (titles,
 * clipboard, links), no questions, no other screen, no other character sets; numbers, strings and marks are bounded.
 */
export class OutputFilter {
  readonly #to: FilteredOutput
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  readonly #reader = new TerminalReader({
    text: (text) => this.#visible(text),
    control: (character) => this.#control(character),
    escape: (final) => this.#escape(final),
    sequence: (parameters, final) => this.#sequence(parameters, final),
  })
  #marks = 0
  #out = ''

  constructor(to: FilteredOutput) {
    this.#to = to
  }

  push(bytes: Uint8Array): void {
    this.#reader.push(this.#decoder.decode(bytes, { stream: true }))
    this.#give()
  }

  /** What was held back, once no more comes or a part is missing. */
  end(): void {
    this.#reader.push(this.#decoder.decode())
    this.#reader.reset()
    this.#marks = 0
    this.#give()
  }

  #give(): void {
    if (this.#out !== '') this.#to.text(this.#out)
    this.#out = ''
  }

  #visible(text: string): void {
    if (!NOT_ASCII.test(text)) {
      this.#marks = 0
      this.#out += text
      return
    }
    for (const character of shown(text)) {
      this.#marks = characterWidth(character.codePointAt(0)!) === 0 ? this.#marks + 1 : 0
      if (this.#marks <= MAX_MARKS) this.#out += character
    }
  }

  #control(character: string): void {
    if (character === '\b' || character === '\r') this.#out += character
    else if (LINE_ENDS.includes(character)) this.#out += '\n'
  }

  #escape(final: string): void {
    if (final === 'c') {
      this.#cleared()
      this.#out += '\u001b[m\u001b[r\u001b[2J\u001b[H'
    } else if ('78DEM'.includes(final)) this.#out += `\u001b${final}`
  }

  #sequence(parameters: string, final: string): void {
    if (final === 'm' && /^[\d;:]*$/.test(parameters)) this.#out += `\u001b[${numbers(parameters, MAX_NUMBER)}m`
    else if (/^\d*(;\d*)?$/.test(parameters)) this.#plain(parameters, final)
  }

  #plain(parameters: string, final: string): void {
    // What terminals look at of these two, whatever follows it.
    const first = Number(parameters.split(';')[0])
    if (final === 'J' && first >= 2) {
      // 3 would forget what has scrolled off.
      if (first > 2) return
      this.#cleared()
      this.#out += '\u001b[2J'
    } else if ((final === 's' || final === 'u') && parameters === '') this.#out += `\u001b[${final}`
    // Of a region that begins below the first row, what scrolls off would be nowhere.
    else if (final === 'r' && first > 1) return
    else if (PLAIN_FINALS.includes(final)) this.#out += `\u001b[${numbers(parameters, MOST[final] ?? MAX_NUMBER)}${final}`
  }

  #cleared(): void {
    this.#give()
    this.#to.clear()
  }
}
