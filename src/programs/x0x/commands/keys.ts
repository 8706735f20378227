import type { Logger } from '../../../base/log.ts'
import { shownLine, visibleJson } from '../../../base/visible-text.ts'
import { TOKEN_NAMES } from '../../../cli/keys.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { operate } from '../../../clients/operator.ts'
import { loadPrimitives } from '../../../identity/primitives.ts'
import { rotateAgentKey } from '../../../supervision/rotate-agent-key.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { printDone, printLine } from '../print.ts'

/** `x0x keys rotate-token [WHICH]`. */
export const runRotateToken = async (context: CliContext, { words: [which = 'api-token'] }: CommandLine): Promise<number> => {
  const token = TOKEN_NAMES.find((name) => name === which)
  if (token === undefined)
    throw usageError(`${JSON.stringify(which)} is none of the secrets that callers have`, `one of ${TOKEN_NAMES.join(', ')}`)
  const answer = await operate<{ file: string }>(context, '/keys/rotate-token', { token: token.replace('-', '_') })
  return printDone(context, answer, async () => {
    await printLine(context, shownLine(`made anew: ${answer.file}; the one before opens nothing more`))
    if (token === 'operator-key') await printLine(context, 'windows of humans that are open stay so until they are closed')
  })
}

const tell = (fields: object | string, text = ''): void => void process.stderr.write(`${visibleJson(JSON.stringify({ text, fields }))}\n`)
/** What goes wrong with the journal, without the logger of the daemons, which takes long to load. */
const TOLD: Logger = { debug: () => undefined, info: () => undefined, warn: tell, error: tell, child: () => TOLD }

/** `x0x keys rotate`: in the data directory itself, which no daemon may have. */
export const runRotate = async (context: CliContext, line: CommandLine): Promise<number> => {
  if (!line.has('yes'))
    throw usageError(
      'this agent gets another id; contacts follow it, ACLs do not: whoever lists the old id has to list the new one',
      'when that is what you want, add --yes',
    )
  await loadPrimitives()
  const rotated = await rotateAgentKey({ log: TOLD }, context.api.paths)
  return printDone(context, { ok: true, ...rotated }, async () => {
    await printLine(context, `agent ${rotated.agent_id}, formerly ${rotated.formerly}`)
    await printLine(context, 'start x0xd: contacts learn it when they are linked; their ACLs need an entry for the new id')
  })
}
