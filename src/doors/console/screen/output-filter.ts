import { replaceInvisible } from '../../../base/visible-text.ts'
import { characterWidth } from './character-width.ts'

/** Of the terminal that commands run on, and of the one that holds their screen. */
export const RUN_COLUMNS = 80
export const RUN_ROWS = 24

/** Characters after which a sequence, or a string that nothing closes, counts as none. */
const MAX_SEQUENCE = 256
const MAX_STRING = 4_096
/** Marks upon one character. */
const MAX_MARKS = 8
/** Larger numbers mean the same on a terminal of 80 columns, and colours end here. */
const MAX_NUMBER = 255

type State = 'text' | 'escape' | 'intermediate' | 'sequence' | 'string'

// oxlint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u001f\u007f]/g
// oxlint-disable-next-line no-control-regex
const NOT_ASCII = /[^\u0000-\u007f]/
/** What a row may hold although it does not show itself: what joins characters, and glyphs of private fonts. */
const LEGIBLE = /^(\u200c|\u200d|\ufe0e|\ufe0f|\p{Co})$/u

/** Moves the cursor, erases, inserts or deletes within the screen. */
const PLAIN_FINALS = 'ABCDEFGHfde`aJKXP@LMSTrIZb'
/** Each counts rows, or repeats for a row at most. */
const MOST: Readonly<Record<string, number>> = { S: RUN_ROWS, T: RUN_ROWS, L: RUN_ROWS, M: RUN_ROWS, b: RUN_COLUMNS, I: 10, Z: 10 }

/** What the filter gives. */
export interface FilteredOutput {
  /** Visible text, BS, HT, LF, CR and a few sequences that concern this screen alone. */
  text(text: string): void
  /** The program erases its whole screen; what stood there was to be read. */
  clear(): void
}

const escaped = (character: string): string => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`

const numbers = (parameters: string, most: number): string =>
  parameters.replaceAll(/\d+/g, (digits) => (digits.length > 4 ? String(most) : String(Math.min(Number(digits), most))))

/**
 * What a program wrote, cut down to what may reach the terminal that holds its screen: no modes, no strings (titles,
 * clipboard, links), no questions, no other screen, no other character sets; numbers, strings and marks are bounded. A
 * string that nothing closes ends with its line.
 */
export class OutputFilter {
  readonly #to: FilteredOutput
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  #state: State = 'text'
  #passed = 0
  #parameters = ''
  #marks = 0
  #out = ''

  constructor(to: FilteredOutput) {
    this.#to = to
  }

  push(bytes: Uint8Array): void {
    this.#take(this.#decoder.decode(bytes, { stream: true }))
    this.#give()
  }

  /** What was held back, once no more comes or a part is missing. */
  end(): void {
    this.#take(this.#decoder.decode())
    this.#enter('text')
    this.#marks = 0
    this.#give()
  }

  #give(): void {
    if (this.#out !== '') this.#to.text(this.#out)
    this.#out = ''
  }

  #take(text: string): void {
    for (let at = 0; at < text.length;) {
      if (this.#state === 'text') {
        CONTROL.lastIndex = at
        const end = CONTROL.exec(text)?.index ?? text.length
        if (end > at) this.#visible(text.slice(at, end))
        at = end
        if (at === text.length) return
      }
      this.#step(text[at]!)
      at += 1
    }
  }

  #visible(text: string): void {
    if (!NOT_ASCII.test(text)) {
      this.#marks = 0
      this.#out += text
      return
    }
    for (const character of replaceInvisible(text, (one) => (LEGIBLE.test(one) ? one : escaped(one)))) {
      this.#marks = characterWidth(character.codePointAt(0)!) === 0 ? this.#marks + 1 : 0
      if (this.#marks <= MAX_MARKS) this.#out += character
    }
  }

  #step(character: string): void {
    switch (this.#state) {
      case 'text':
        return this.#control(character)
      case 'escape':
        return this.#escape(character)
      case 'intermediate':
        if (character >= ' ' && character <= '/') return this.#pass(MAX_SEQUENCE)
        return character >= '0' && character <= '~' ? this.#enter('text') : this.#again(character)
      case 'sequence':
        return this.#sequence(character)
      case 'string':
        if (character >= ' ' || character === '\t') return this.#pass(MAX_STRING)
        return character === '\u0007' ? this.#enter('text') : this.#again(character)
    }
  }

  #control(character: string): void {
    if ('\b\t\n\r'.includes(character)) this.#out += character
    else if (character === '\u000b' || character === '\f') this.#out += '\n'
    else if (character === '\u001b') this.#enter('escape')
  }

  #escape(character: string): void {
    if (character === '[') return this.#enter('sequence')
    if (']PX^_'.includes(character)) return this.#enter('string')
    if (character >= ' ' && character <= '/') return this.#enter('intermediate')
    if (character < '0' || character > '~') return this.#again(character)
    this.#enter('text')
    if (character === 'c') {
      this.#cleared()
      this.#out += '\u001b[m\u001b[r\u001b[2J\u001b[H'
    } else if ('78DEM'.includes(character)) this.#out += `\u001b${character}`
  }

  #sequence(character: string): void {
    if (character >= ' ' && character <= '?') {
      this.#parameters += character
      return this.#pass(MAX_SEQUENCE)
    }
    const parameters = this.#parameters
    if (character < '@' || character > '~') return this.#again(character)
    this.#enter('text')
    if (character === 'm' && /^[\d;:]*$/.test(parameters)) this.#out += `\u001b[${numbers(parameters, MAX_NUMBER)}m`
    else if (/^\d*(;\d*)?$/.test(parameters)) this.#plain(parameters, character)
  }

  #plain(parameters: string, final: string): void {
    if (final === 'J' && Number(parameters) >= 2) {
      // 3 would forget what has scrolled off.
      if (Number(parameters) > 2) return
      this.#cleared()
      this.#out += '\u001b[2J'
    } else if ((final === 's' || final === 'u') && parameters === '') this.#out += `\u001b[${final}`
    // Of a region that begins below the first row, what scrolls off would be nowhere.
    else if (final === 'r' && Number(parameters.split(';')[0]) > 1) return
    else if (PLAIN_FINALS.includes(final)) this.#out += `\u001b[${numbers(parameters, MOST[final] ?? MAX_NUMBER)}${final}`
  }

  #cleared(): void {
    this.#give()
    this.#to.clear()
  }

  #enter(state: State): void {
    this.#state = state
    this.#passed = 0
    this.#parameters = ''
  }

  #pass(max: number): void {
    this.#passed += 1
    if (this.#passed >= max) this.#enter('text')
  }

  /** The sequence ends here unfinished, and the character is none of it. */
  #again(character: string): void {
    this.#enter('text')
    this.#control(character)
  }
}
