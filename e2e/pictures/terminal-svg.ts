import { textOf, type Cell } from './screen.ts'

export interface ShownPane {
  /** Null for a single pane. */
  readonly title: string | null
  readonly rows: readonly (readonly Cell[])[]
}

const [CHARACTER, ROW, MARGIN, TITLE] = [8, 18, 14, 26]

/** Both colour schemes have a contrast of at least 4.5 between text and background (WCAG 2). */
const STYLE = [
  'svg{--ground:#fbfbfd;--edge:#d0d4dc;--bar:#eef0f4;--text:#1c2128;--dim:#5b6470;--red:#b3202c;--green:#176f2c;--yellow:#7d5600;--cyan:#075f87}',
  '@media(prefers-color-scheme:dark){svg{--ground:#12161c;--edge:#343c48;--bar:#1c222b;--text:#e3e7ed;--dim:#98a2b0;--red:#ff8a84;--green:#6fd487;--yellow:#e5b94e;--cyan:#6cc4ee}}',
  'text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--text)}',
  '.t{fill:var(--dim);font-weight:600}.b{font-weight:700}.d{fill:var(--dim)}',
  '.red{fill:var(--red)}.green{fill:var(--green)}.yellow{fill:var(--yellow)}.cyan{fill:var(--cyan)}',
].join('')

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')

const classOf = ({ bold, dim, colour }: Cell): string =>
  [bold ? 'b' : '', dim && colour === null ? 'd' : '', colour ?? ''].filter(Boolean).join(' ')

interface Piece {
  at: number
  columns: number
  text: string
  readonly style: string
}

/** Removes blanks at the ends, which some viewers of the SVG drop. */
const withoutBlanks = ({ at, columns, text, style }: Piece): Piece => {
  const [before, after] = [text.length - text.trimStart().length, text.length - text.trimEnd().length]
  return { at: at + before, columns: columns - before - after, text: text.trim(), style }
}

/** Runs of equal style without gaps of two or more blanks. Each has its own position, so that columns align in any font. */
const piecesOf = (row: readonly Cell[]): Piece[] => {
  const pieces: Piece[] = []
  const end = row.findLastIndex(({ text }) => text.trim() !== '') + 1
  for (let at = 0; at < end; at++) {
    const cell = row[at]!
    const isGap = cell.text === ' ' && (row[at + 1]?.text === ' ' || row[at - 1]?.text === ' ' || at === 0)
    const last = pieces.at(-1)
    if (isGap) continue
    if (last !== undefined && last.at + last.columns === at && (last.style === classOf(cell) || cell.text === '')) {
      last.columns += 1
      last.text += cell.text
    } else pieces.push({ at, columns: 1, text: cell.text, style: classOf(cell) })
  }
  return pieces.filter(({ text }) => text.trim() !== '').map(withoutBlanks)
}

const rowSvg = (row: readonly Cell[], y: number): string =>
  piecesOf(row)
    .map(({ at, columns, text, style }) => {
      const length = columns > 1 ? ` textLength="${columns * CHARACTER}" lengthAdjust="spacingAndGlyphs"` : ''
      return `<text x="${MARGIN + at * CHARACTER}" y="${y}"${style === '' ? '' : ` class="${style}"`}${length}>${escaped(text)}</text>`
    })
    .join('')

const paneSvg = ({ title, rows }: ShownPane, top: number, width: number): { svg: string; height: number } => {
  const begin = title === null ? 0 : TITLE
  const height = begin + 2 * MARGIN + rows.length * ROW
  const bar =
    title === null
      ? ''
      : `<path d="M1 ${top + TITLE}h${width - 2}" stroke="var(--edge)"/><text x="${MARGIN}" y="${top + 18}" class="t">${escaped(title)}</text>`
  const box = `<rect x=".5" y="${top + 0.5}" width="${width - 1}" height="${height - 1}" rx="8" fill="var(--ground)" stroke="var(--edge)"/>`
  const lines = rows.map((row, at) => rowSvg(row, top + begin + MARGIN + at * ROW + 13)).filter((line) => line !== '')
  return { svg: [box + bar, ...lines].join('\n'), height }
}

/** A picture of one or more terminals, one below the other. Its text has both colour schemes, and it needs no script and no font. */
export const terminalSvg = (title: string, panes: readonly ShownPane[], columns: number): string => {
  const width = columns * CHARACTER + 2 * MARGIN
  let height = 0
  const parts = panes.map((pane) => {
    const shown = paneSvg(pane, height, width)
    height += shown.height + MARGIN / 2
    return shown.svg
  })
  height -= MARGIN / 2
  const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}" xml:space="preserve">`
  return `${head}\n<title>${escaped(title)}</title>\n<style>${STYLE}</style>\n${parts.join('\n')}\n</svg>\n`
}

/** The text of such a picture by rows, with each piece at its column. */
export const svgRows = (svg: string): string[] => {
  const rows = new Map<number, string>()
  for (const [, x, y, text] of svg.matchAll(/<text x="(\d+)" y="(\d+)"[^>]*>([^<]*)<\/text>/g)) {
    const at = (Number(x) - MARGIN) / CHARACTER
    const plain = text!.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&quot;', '"').replaceAll('&amp;', '&')
    rows.set(Number(y), `${(rows.get(Number(y)) ?? '').padEnd(at)}${plain}`)
  }
  return [...rows].toSorted(([one], [other]) => one - other).map(([, text]) => text.trimEnd())
}

export const isPrompt = (row: readonly Cell[]): boolean => /^\w+\$$/.test(textOf(row))
