import { replaceInvisible } from '../base/visible-text.ts'

/** Longest token shown in a sentence. */
const SHOWN = 120

/** A token as one line of plain, visible text in double quotes; longer than anybody reads, it is cut with an ellipsis. */
export const quote = (text: string | undefined): string => {
  const shown = text ?? ''
  const cut = shown.length > SHOWN ? `${shown.slice(0, SHOWN)}…` : shown
  return replaceInvisible(JSON.stringify(cut), (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`)
}

/** An argv as one line: `["systemctl", "status"]`. */
export const quoteArgv = (argv: readonly string[]): string => `[${argv.map(quote).join(', ')}]`
