import { errorText } from '../../base/errors.ts'
import { shownLine } from '../../base/visible-text.ts'
import { RexdError } from '../../sdk/errors.ts'

/** What went wrong, then what to do next where the server says so. Both may be its own words: a terminal obeys nothing of them, and no line of them stands where ours do. */
export const failureText = (error: unknown): string => {
  const next = error instanceof RexdError ? error.data['next'] : null
  const lines = [errorText(error), ...(typeof next === 'string' && next !== '' ? [next] : [])].flatMap((text) => text.split('\n'))
  return lines.map((line, at) => `${at === 0 ? 'rexd: ' : '      '}${shownLine(line)}\n`).join('')
}
