import { shownLine } from '../../../base/visible-text.ts'
import { TOKEN_NAMES } from '../../../command-line/keys.ts'
import { operate } from '../../../local-api/operator.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { printDone, printLine } from '../print.ts'

/** `x0x keys rotate-token [WHICH]`. */
export const runRotateToken = async (context: CliContext, which: string): Promise<number> => {
  const token = TOKEN_NAMES.find((name) => name === which)
  if (token === undefined)
    throw usageError(`${JSON.stringify(which)} is none of the secrets that callers have`, `one of ${TOKEN_NAMES.join(', ')}`)
  const answer = await operate<{ file: string }>(context, '/keys/rotate-token', { token: token.replace('-', '_') })
  return printDone(context, answer, async () => {
    await printLine(context, shownLine(`made anew: ${answer.file}; the one before opens nothing more`))
    if (token === 'operator-key') await printLine(context, 'windows of humans that are open stay so until they are closed')
  })
}
