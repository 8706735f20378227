import { fileURLToPath } from 'node:url'
import { systemClock } from '../../base/clock.ts'
import { printAtStart, standardErrorLog } from '../../base/log-output.ts'
import { createLogger } from '../../base/log.ts'
import { startAll, stopAll } from '../../base/startable.ts'
import { logStopFailures, stopConditions } from '../../cli/exit.ts'
import { LocalApi } from '../../clients/daemon.ts'
import { loadPageFiles } from '../../doors/page/services.ts'
import { PageServer } from '../../doors/page/server.ts'
import { PAGE_LINK_MS } from '../../protocol/limits/page.ts'
import { jsonText } from '../../protocol/lines.ts'
import { fromSources } from '../../supervision/own-process.ts'
import type { UiFlags } from './flags.ts'
import { pageDesk } from './page-desk.ts'
import { pageSources } from './page-sources.ts'

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
    { desk: pageDesk(api.paths), sources: pageSources(api, flags), files, clock: systemClock, log },
    { port, loopbackIp },
  )
  const parts = [{ name: 'page', startable: page }]
  await startAll(parts)
  const print = (): void => printAtStart(linkText(page.newLink(), json))
  print()
  if (!json) standardErrorLog().write(HINT)
  onLine(print)
  await new Promise((resolve) => {
    if (stop.signal.aborted) resolve(null)
    stop.signal.addEventListener('abort', resolve, { once: true })
  })
  process.stdin.pause()
  logStopFailures(log, await stopAll(parts))
  return stop.status() ?? 0
}
