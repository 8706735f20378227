import { fileURLToPath } from 'node:url'
import { aborted } from '../../base/abort.ts'
import { systemClock } from '../../base/clock.ts'
import { printAtStart, standardErrorLog } from '../../base/log-output.ts'
import { createLogger } from '../../base/log.ts'
import type { Environment } from '../../base/runtime.ts'
import { startAll, stopAll } from '../../base/startable.ts'
import { logStopFailures, stopConditions } from '../../cli/exit.ts'
import { runProgram } from '../../cli/program-line.ts'
import { UI } from '../../cli/programs.ts'
import { LocalApi } from '../../clients/daemon.ts'
import { type ApprovalServiceEvent, openDesk } from '../../clients/desk.ts'
import type { DataPaths } from '../../clients/paths.ts'
import { type PageDesk, loadPageFiles } from '../../doors/page/services.ts'
import { PageServer } from '../../doors/page/server.ts'
import type { Flood, PendingApprovalRequest } from '../../protocol/desk/messages.ts'
import { PAGE_LINK_MS } from '../../protocol/limits/page.ts'
import { jsonText } from '../../protocol/lines.ts'
import type { PageEvent } from '../../protocol/page.ts'
import { fromSources } from '../../supervision/own-process.ts'
import { type UiFlags, pageSources, uiFlags } from './page-sources.ts'

/** Name of the approval client in the approval log and for other approvers. */
const NAME = 'x0x ui'

/** Interval of the check that the approval service still answers. */
const LOOK_MS = 5_000

const newsOf = (news: ApprovalServiceEvent): PageEvent => {
  const { type, ...fields } = news
  if (type === 'question') return { type, question: fields as PendingApprovalRequest }
  return type === 'flood' ? { type, flood: fields as Flood } : news
}

/** The approval service of a data directory for a page. */
export const pageDesk = (paths: DataPaths): PageDesk => ({
  watch: async (listener) => {
    const desk = await openDesk(paths, NAME)
    try {
      const { questions, floods } = await desk.subscribe((news) => listener(newsOf(news)))
      for (const question of questions) listener({ type: 'question', question })
      for (const flood of floods) listener({ type: 'flood', flood })
    } catch (error) {
      desk.close()
      throw error
    }
    // A stopped service sends nothing, so its requests would be missed.
    const look = setInterval(() => void desk.modes({ session: null, agent: null }).catch(() => undefined), LOOK_MS)
    void desk.closed.then(() => clearInterval(look))
    return {
      ended: desk.closed.then(({ message }) => message),
      decide: async ({ question_id, permit_sha256, decision, expires_in_ms, uses }) =>
        desk.decide({
          question_id,
          permit_sha256,
          decision,
          ...(expires_in_ms === null ? {} : { expires_in_ms }),
          ...(uses === null ? {} : { uses }),
        }),
      follow: async (runs) => desk.follow(runs),
      close: () => desk.close(),
    }
  },
})

/** The page's files are beside this program. */
const pageDirectory = (): string => fileURLToPath(new URL(fromSources ? '../../../dist/page' : './page', import.meta.url))

const linkText = (link: string, json: boolean): string => (json ? `${jsonText({ url: link, expires_in_ms: PAGE_LINK_MS })}\n` : `${link}\n`)

const HINT = `x0x ui: follow the link within ${PAGE_LINK_MS / 1000} s; it signs in once. Enter prints a new one, Ctrl-C ends this.
If the browser does not find the address: another browser, or x0x ui --loopback-ip.\n`

/** Prints a new link for each line typed at the terminal. */
const onLine = (print: () => void): void => {
  process.stdin.on('data', print).on('error', () => undefined)
}

/** Serves the page until it is stopped, and returns the exit status. */
export const serve = async (flags: UiFlags): Promise<number> => {
  const { instance, env, port, loopbackIp, json } = flags
  const log = createLogger({ name: 'x0x-ui' })
  const files = await loadPageFiles(pageDirectory())
  const api = new LocalApi({ instance, url: null, env })
  const stop = stopConditions(log, { untilEof: false })
  const page = new PageServer(
    { desk: pageDesk(api.paths), sources: pageSources({ api, clock: systemClock }, flags), files, clock: systemClock, log },
    { port, loopbackIp },
  )
  const parts = [{ name: 'page', startable: page }]
  await startAll(parts)
  const print = (): void => printAtStart(linkText(page.newLink(), json))
  print()
  if (!json) standardErrorLog().write(HINT)
  onLine(print)
  await aborted(stop.signal)
  process.stdin.pause()
  logStopFailures(log, await stopAll(parts))
  return stop.status() ?? 0
}

/** Returns the exit status: 0; 2 for flags or an incomplete build; 128+n for a signal; 1 for anything else. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(UI, argv, async (line) => serve(uiFlags(line, env)))
