import type { ControlSequence } from './control-parser.ts'

const ESC = '\u001b'
const CSI = `${ESC}[`
const BEL = '\u0007'

/** Private modes that are usually off. Programs that are cut off leave them on: keys, margins, mouse, focus, paste and others. */
const USUALLY_OFF: ReadonlySet<string> = new Set(
  '1 5 6 9 66 69 1000 1001 1002 1003 1004 1005 1006 1007 1015 1016 2004 2026 2031 2048'.split(' '),
)
/** Private modes that are usually on: wrapping and the cursor. */
const USUALLY_ON: ReadonlySet<string> = new Set(['7', '25'])
const ALTERNATE: ReadonlySet<string> = new Set(['47', '1047', '1049'])
const LEAVE_ALTERNATE = `${CSI}?1049l`
const KEYPAD = `${ESC}>`
const CHARSET = `${ESC}(B`
const SHIFT_OUT = 0x0e
const SHIFT_IN = 0x0f
/** Keeps the position of the cursor, which a new scroll region would change. */
const WHOLE_REGION = `${ESC}7${CSI}r${ESC}8`

/** Follows what a program changes in a terminal, to undo it at the end. */
export class TerminalModes {
  readonly #undo = new Set<string>()
  #isAlternate = false

  /** The program draws on the alternate screen. */
  get isAlternate(): boolean {
    return this.#isAlternate
  }

  text(bytes: Uint8Array): void {
    if (bytes.includes(SHIFT_OUT)) this.#undo.add(String.fromCharCode(SHIFT_IN))
  }

  escape(intermediates: string, final: string): void {
    if (intermediates === '' && final === '=') this.#undo.add(KEYPAD)
    if (intermediates === '' && final === '>') this.#undo.delete(KEYPAD)
    if (intermediates === '(') this.#changed(CHARSET, final !== 'B')
  }

  sequence({ parameters, intermediates, final }: Pick<ControlSequence, 'parameters' | 'intermediates' | 'final'>): void {
    if (intermediates === ' ' && final === 'q') this.#changed(`${CSI}0 q`, !['', '0'].includes(parameters))
    if (intermediates !== '') return
    if ((final === 'h' || final === 'l') && parameters.startsWith('?'))
      // A terminal reads 01003 as 1003.
      for (const mode of parameters.slice(1).split(';')) this.#mode(String(Number(mode)), final)
    if (final === 'r' && /^[0-9;]*$/.test(parameters)) this.#changed(WHOLE_REGION, parameters !== '')
    if ((final === 'h' || final === 'l') && parameters === '4') this.#changed(`${CSI}4l`, final === 'h')
    if (final === 'm' && parameters.startsWith('>4')) this.#changed(`${CSI}>4m`, parameters !== '>4')
    // The keyboard protocol of kitty has a stack.
    if (final === 'u' && /^[>=]/.test(parameters)) this.#undo.add(`${CSI}<9u`)
  }

  /** An operating system command (OSC): 4 and 10 to 19 set colours, and the same plus 100 resets them. */
  command(body: string): void {
    const [code = ''] = body.split(';')
    if (/^(4|1[0-9])$/.test(code)) this.#undo.add(`${ESC}]${Number(code) + 100}${BEL}`)
    if (/^1(04|1[0-9])$/.test(code)) this.#undo.delete(`${ESC}]${code}${BEL}`)
  }

  /** Undoes everything, the alternate screen last. */
  end(): string {
    const text = [...this.#undo, ...(this.#isAlternate ? [LEAVE_ALTERNATE] : []), `${CSI}0m`].join('')
    this.#undo.clear()
    this.#isAlternate = false
    return text
  }

  #mode(mode: string, final: 'h' | 'l'): void {
    if (ALTERNATE.has(mode)) this.#isAlternate = final === 'h'
    if (USUALLY_OFF.has(mode)) this.#changed(`${CSI}?${mode}l`, final === 'h')
    if (USUALLY_ON.has(mode)) this.#changed(`${CSI}?${mode}h`, final === 'l')
  }

  #changed(undo: string, isChanged: boolean): void {
    if (isChanged) this.#undo.add(undo)
    else this.#undo.delete(undo)
  }
}
