import type { Environment } from '../../base/runtime.ts'
import { plainText, shownSentence } from '../../base/visible-text.ts'
import type { Output } from '../../cli/output.ts'
import { cutTo, textWidth } from '../../doors/console/screen/cells.ts'
import { type Paint, painter } from './print.ts'

/** Width without a terminal, or on a terminal that does not report it. */
const DEFAULT_COLUMNS = 80
/** Limits of the width. Narrower drawings are illegible, and longer lines hard to follow. */
const [MIN_COLUMNS, MAX_COLUMNS] = [40, 200]

/** Characters of lines and bars. */
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

/** Width, characters and colours of drawings. */
export interface Drawing {
  readonly columns: number
  readonly glyphs: Glyphs
  readonly paint: Paint
  /** Foreign text in exactly this many columns. It cannot move its neighbours. */
  cell(text: string, columns: number): string
}

/** By the first locale variable that is set (locale(7)). */
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

export const widestOf = (texts: readonly string[], most: number): number =>
  Math.min(most, Math.max(0, ...texts.map((text) => textWidth(shownSentence(text)))))
