import type { Environment } from '../../../base/environment.ts'

/** How text of ours looks, wherever it is printed. */
export interface Look {
  readonly colour: boolean
  /** Lines are drawn; else marks of ASCII. */
  readonly drawn: boolean
}

/** Text alone, as a file has it. */
export const PLAIN_LOOK: Look = { colour: false, drawn: false }

/** Numbers in the table of 256 colours that can be read on black and on white. */
export const AGENT_COLOURS = [31, 166, 64, 133, 136, 69, 168, 30] as const

/** The same for one name wherever and whenever it is shown: FNV-1a, whose low bits alone are alike for many names. */
const colourOfAgent = (whoami: string): number => {
  let hash = 0x811c9dc5
  for (const byte of Buffer.from(whoami)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0
  return AGENT_COLOURS[((hash ^ (hash >>> 15)) >>> 0) % AGENT_COLOURS.length]!
}

const STYLES = { bold: '1', dim: '2', bar: '7', bad: '31' } as const
type Style = keyof typeof STYLES

export const styled = ({ colour }: Look, style: Style, text: string): string =>
  colour && text !== '' ? `\u001b[${STYLES[style]}m${text}\u001b[m` : text

/** In the colour of an agent. */
export const inColourOf = ({ colour }: Look, whoami: string, text: string): string =>
  colour ? `\u001b[1;38;5;${colourOfAgent(whoami)}m${text}\u001b[m` : text

interface LookOptions {
  readonly isTerminal: boolean
  readonly env: Environment
  /** `--force-color`, `--no-color`; null: neither. */
  readonly colour: boolean | null
}

/** Flags first, then FORCE_COLOR, NO_COLOR (no-color.org), and what the output is. */
const wantsColour = ({ isTerminal, env, colour }: LookOptions): boolean => {
  if (colour !== null) return colour
  const { FORCE_COLOR: force } = env
  if (force !== undefined && force !== '') return force !== '0' && force !== 'false'
  return isTerminal && !env['NO_COLOR'] && env['TERM'] !== 'dumb'
}

/** A locale that says it has no UTF-8; one that says nothing is taken to have it. */
const hasNoUtf8 = (env: Environment): boolean => {
  const locale = env['LC_ALL'] || env['LC_CTYPE'] || env['LANG']
  return locale !== undefined && locale !== '' && !/utf-?8/i.test(locale)
}

export const lookOf = (options: LookOptions): Look => ({
  colour: wantsColour(options),
  drawn: options.isTerminal && options.env['TERM'] !== 'dumb' && !hasNoUtf8(options.env),
})

/** What stands before every line; what a command writes stands behind the first three alone. */
interface Marks {
  readonly output: string
  /** The line above goes on. */
  readonly goesOn: string
  /** A line that was printed above as it was before. */
  readonly again: string
  readonly end: string
  /** The line above, which is ours, goes on. */
  readonly oursGoesOn: string
}

const DRAWN: Marks = { output: '│ ', goesOn: '┊ ', again: '~ ', end: '└ ', oursGoesOn: '    ' }
const ASCII: Marks = { output: '| ', goesOn: ': ', again: '~ ', end: '= ', oursGoesOn: '    ' }

export const marksOf = ({ drawn }: Look): Marks => (drawn ? DRAWN : ASCII)
