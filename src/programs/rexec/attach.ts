import type { Environment } from '../../base/environment.ts'
import { type ConsoleLink, openConsole } from '../../clients/console-link.ts'
import { type Page, entryText, pageOf } from '../../doors/console/entry-text.ts'
import { type TranscriptEntry, parseEntry } from '../../protocol/transcript-entry.ts'
import { onStopSignal } from '../../supervision/program-exit.ts'
import { untilEnded, write } from '../../supervision/program-output.ts'
import { noHost, tell } from './tell.ts'

/** Loaded where colours are wanted: it holds a terminal. */
const coloured = async (entry: TranscriptEntry, page: Page): Promise<AsyncGenerator<string>> =>
  (await import('../../doors/console/coloured-entry.ts')).colouredEntry(entry, page)

/** What the host tells, until it ends or nobody wants more. */
async function* entries(link: ConsoleLink, page: Page, signal: AbortSignal): AsyncGenerator<string> {
  signal.addEventListener('abort', () => link.close(), { once: true })
  for (let line = await link.next(); line !== null; line = await link.next()) {
    if (line['event'] !== 'transcript') continue
    const parsed = parseEntry(Buffer.from(JSON.stringify(line['entry'])))
    if ('entry' in parsed) yield* page.look.colour ? await coloured(parsed.entry, page) : [entryText(parsed.entry, page)]
    else tell(`rexec: an entry of the host is none: ${parsed.problem}`)
  }
}

/** Prints commands as they end on the running host, until it ends or Ctrl-C. `colour`: null where no flag says. */
export const attach = async (env: Environment, { colour }: { readonly colour: boolean | null }): Promise<number> => {
  const link = await openConsole(env)
  if (link === null) return noHost(env)
  const page = pageOf(process.stdout, env, colour)
  link.send({ action: 'attach', ansi: page.look.colour })
  return untilEnded({ stdout: process.stdout, onSignal: onStopSignal }, async (signal) => {
    for await (const text of entries(link, page, signal)) if (!(await write(process.stdout, text))) break
  }).finally(() => link.close())
}
