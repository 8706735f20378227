import { pasteable } from '../../base/hint.ts'
import type { Environment } from '../../base/runtime.ts'
import { shownLine, visibleJson } from '../../base/visible-text.ts'
import { type Output, write } from '../../cli/output.ts'
import type { CliContext } from './context.ts'

const CODES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 } as const
export type Paint = (style: keyof typeof CODES, text: string) => string

/** Colours for terminals only, and not with NO_COLOR (no-color.org). */
export const painter = (output: Output, env: Environment): Paint =>
  output.isTTY === true && !env['NO_COLOR'] && env['TERM'] !== 'dumb'
    ? (style, text) => `\u001b[${CODES[style]}m${text}\u001b[0m`
    : (_style, text) => text

export const printLine = async (context: CliContext, line: string): Promise<boolean> => write(context.stdout, `${line}\n`)

export const printJson = async (context: CliContext, value: unknown): Promise<boolean> =>
  write(context.stdout, `${visibleJson(JSON.stringify(value, null, context.json ? undefined : 2))}\n`)

/** Prints an answer as JSON for programs, otherwise through `forPeople`. Returns the exit status. */
export const printAnswer = async (context: CliContext, answer: unknown, forPeople: () => Promise<unknown>): Promise<number> => {
  await (context.json ? printJson(context, answer) : forPeople())
  return 0
}

/** Like `printAnswer`, for a change. Prints only without `--quiet`. */
export const printDone = async (context: CliContext, answer: unknown, forPeople: () => Promise<unknown>): Promise<number> =>
  printAnswer(context, answer, async () => (context.quiet ? undefined : forPeople()))

/** Prints advice. Its commands repeat the options that the user gave. */
export const printHint = async (context: CliContext, text: string): Promise<boolean> =>
  printLine(context, shownLine(pasteable(text, context.given)))

/** Prints on standard error, except with `--quiet`. Commands in it repeat the options that the user gave. */
export const printNotice = async (context: CliContext, text: string): Promise<boolean> =>
  context.quiet || write(context.stderr, `x0x: ${pasteable(text, context.given)}\n`)

/** Columns padded to the widest entry. Entries are foreign text and escaped. */
export const table = (header: readonly string[], rows: readonly (readonly string[])[]): string[] => {
  const lines = [header, ...rows].map((row) => row.map(shownLine))
  const widths = header.map((_, column) => Math.max(...lines.map((row) => row[column]?.length ?? 0)))
  return lines.map((row) =>
    row
      .map((cell, column) => (column === header.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join('  ')
      .trimEnd(),
  )
}

export const printTable = async (context: CliContext, header: readonly string[], rows: readonly (readonly string[])[]): Promise<void> => {
  const [first = '', ...rest] = table(header, rows)
  const paint = painter(context.stdout, context.env)
  await write(context.stdout, `${[paint('dim', first), ...rest].join('\n')}\n`)
}
