import type { Environment } from '../../base/runtime.ts'
import { plainText, shownSentence } from '../../base/visible-text.ts'
import type { Output } from '../../cli/output.ts'
import { cutTo, textWidth } from '../../doors/console/screen/cells.ts'
import { type Paint, painter } from './print.ts'

/** Of what is no terminal, or one that does not say. */
const DEFAULT_COLUMNS = 80
/** Narrower than this nothing can be told apart; wider a line is hard to follow. */
const [MIN_COLUMNS, MAX_COLUMNS] = [40, 200]

/** What lines and bars are made of. */
const GLYPHS = {
  branch: '├',
  last: '└',
  proven: '══',
  connected: '──',
  announced: '╌╌',
  bar: '━',
  short: '╸',
  denied: '✗',
  open: '›',
  axis: '·',
} as const
export type Glyphs = Readonly<Record<keyof typeof GLYPHS, string>>
const ASCII: Glyphs = {
  branch: '|',
  last: '`',
  proven: '==',
  connected: '--',
  announced: '..',
  bar: '=',
  short: '-',
  denied: 'x',
  open: '>',
  axis: '.',
}

/** How a command may draw: so wide, with these characters, in these colours or none. */
export interface Drawing {
  readonly columns: number
  readonly glyphs: Glyphs
  readonly paint: Paint
  /** Foreign text in exactly so many columns; nothing in it moves what stands beside it. */
  cell(text: string, columns: number): string
}

/** By the locale, of which the first that is set counts (locale(7)). */
const isUtf8 = (env: Environment): boolean => /utf-?8/i.test(env['LC_ALL'] || env['LC_CTYPE'] || env['LANG'] || '')

export const drawingFor = (output: Output, env: Environment): Drawing => {
  const utf8 = isUtf8(env)
  const fitted = (text: string, columns: number): string => {
    if (utf8) return cutTo(shownSentence(text), columns)
    const plain = plainText(shownSentence(text))
    return plain.length <= columns ? plain : `${plain.slice(0, Math.max(0, columns - 1))}~`
  }
  return {
    columns: Math.min(MAX_COLUMNS, Math.max(MIN_COLUMNS, output.columns || DEFAULT_COLUMNS)),
    glyphs: utf8 ? GLYPHS : ASCII,
    paint: painter(output, env),
    cell: (text, columns) => {
      const shown = fitted(text, columns)
      return shown + ' '.repeat(Math.max(0, columns - textWidth(shown)))
    },
  }
}

/** Columns that the widest of these texts takes, at most `most`. */
export const widestOf = (texts: readonly string[], most: number): number =>
  Math.min(most, Math.max(0, ...texts.map((text) => textWidth(shownSentence(text)))))
