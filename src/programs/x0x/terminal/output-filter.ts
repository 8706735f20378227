import { ControlParser, type ControlSequence } from './control-parser.ts'
import { TerminalModes } from './terminal-modes.ts'

/**
 * Commands (OSC) that pass: colours, links and marks of prompts. Titles, the clipboard, notifications, files and unknown commands do not.
 */
const COMMANDS: ReadonlySet<string> = new Set(
  '4 5 8 10 11 12 13 14 15 16 17 18 19 104 105 110 111 112 113 114 115 116 117 118 119 133'.split(' '),
)

/** A colour of `?` is a question, which the terminal would answer by typing. */
const passesCommand = (body: string | null): boolean => {
  if (body === null) return false
  const [code = '', ...values] = body.split(';')
  return COMMANDS.has(code) && !values.includes('?')
}

/** Sequences that pass although a terminal answers: position of the cursor and attributes of the device. vim, less and tmux need them. */
const ANSWERS: ReadonlySet<string> = new Set(['6n', '?6n', 'c', '0c', '>c', '>0c'])

/**
 * Finals without intermediates that report, print, or change the window: attributes (c), status (n), print (i), window (t), parameters (x),
 * and with a private marker also graphics (S), keys (m, u), version (q), and saved modes (s, r), which nobody could undo.
 */
const isQuery = (parameters: string, final: string): boolean => {
  if ('citx'.includes(final) || (final === 'n' && !parameters.startsWith('>'))) return true
  if (parameters.startsWith('?')) return 'Smursu'.includes(final)
  return final === 'q' && parameters.startsWith('>')
}

/** The same with intermediates: modes ($p, $w), checksums (*y), locators ('|), characters (&u), and reports of xterm (#). */
const QUERIES: ReadonlySet<string> = new Set(['$p', '$u', '$w', '*y', "'|", '&u', '"v', '#|', '#R', '#S', '#P', '#Q'])

/** These change the size of the window. */
const RESIZES: ReadonlySet<string> = new Set(['$|', '*|'])

/**
 * A terminal of 1975 (VT52, mode 2 off) reads other sequences, so it would see what this filter does not. Modes 3 and 40 change the width of
 * the window.
 */
const isRefusedMode = (parameters: string, final: string): boolean => {
  if ((final !== 'h' && final !== 'l') || !parameters.startsWith('?')) return false
  const modes = parameters.slice(1).split(';').map(Number)
  return (final === 'l' && modes.includes(2)) || modes.includes(3) || modes.includes(40)
}

const passesSequence = ({ parameters, intermediates, final }: ControlSequence, answers: boolean): boolean => {
  if (intermediates !== '') return !QUERIES.has(intermediates + final) && !RESIZES.has(intermediates + final)
  return (answers && ANSWERS.has(parameters + final)) || !(isQuery(parameters, final) || isRefusedMode(parameters, final))
}

/** `ESC %` leaves UTF-8. `ESC Z` is a question. */
const passesEscape = (intermediates: string, final: string): boolean => !intermediates.startsWith('%') && final !== 'Z'

/**
 * Output of a remote program for a local terminal. Without what sets the title or the clipboard, moves the window, prints, or makes the
 * terminal type an answer. Everything else passes unchanged. The result does not depend on how the output is cut.
 */
export class TerminalOutputFilter {
  readonly #modes = new TerminalModes()
  readonly #parser: ControlParser
  readonly #isRaw: boolean
  #out: Uint8Array[] = []

  /** With `raw`, all output passes. Without `answers`, a terminal is asked nothing, because no program reads the answer. */
  constructor({ raw, answers = true }: { readonly raw: boolean; readonly answers?: boolean }) {
    this.#isRaw = raw
    this.#parser = new ControlParser({
      text: (bytes) => {
        this.#modes.text(bytes)
        this.#pass(bytes)
      },
      query: () => undefined,
      escape: (bytes, intermediates, final) => {
        if (!passesEscape(intermediates, final)) return
        this.#modes.escape(intermediates, final)
        this.#pass(bytes)
      },
      sequence: (sequence) => {
        const passes = passesSequence(sequence, answers)
        if (passes || raw) this.#modes.sequence(sequence)
        this.#pass(passes ? sequence.raw : sequence.controls)
      },
      command: (bytes, body) => {
        if (!passesCommand(body)) return
        this.#modes.command(body ?? '')
        this.#pass(bytes)
      },
    })
  }

  /** The program draws on the alternate screen. */
  get isAlternate(): boolean {
    return this.#modes.isAlternate
  }

  push(bytes: Uint8Array): Uint8Array {
    this.#parser.push(bytes)
    const out = this.#out
    this.#out = []
    return this.#isRaw ? bytes : out.length === 1 ? out[0]! : Buffer.concat(out)
  }

  /** Parts that follow one another in the output stay one part. */
  #pass(bytes: Uint8Array): void {
    const last = this.#out.at(-1)
    if (last !== undefined && last.buffer === bytes.buffer && last.byteOffset + last.length === bytes.byteOffset)
      this.#out[this.#out.length - 1] = new Uint8Array(last.buffer, last.byteOffset, last.length + bytes.length)
    else if (bytes.length > 0) this.#out.push(bytes)
  }

  /** Undoes what the program changed in the terminal. */
  end(): string {
    return this.#modes.end()
  }
}
