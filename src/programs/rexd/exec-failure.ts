import { errorText } from '../../base/errors.ts'
import { shown } from '../../base/visible-text.ts'
import { RexdError } from '../../client/errors.ts'

/** What went wrong, then what to do next where the server says so. Both may be its own words, which a terminal is not to obey. */
export const failureText = (error: unknown): string => {
  const next = error instanceof RexdError ? error.data['next'] : null
  const lines = [`rexd: ${errorText(error)}`, ...(typeof next === 'string' && next !== '' ? [`      ${next}`] : [])]
  return `${shown(lines.join('\n'))}\n`
}
