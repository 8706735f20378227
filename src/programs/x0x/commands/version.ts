import { isAppError } from '../../../base/errors.ts'
import { VERSION } from '../../../base/runtime.ts'
import { shownLine } from '../../../base/visible-text.ts'
import type { CliContext } from '../context.ts'
import { printAnswer, printLine } from '../print.ts'

/** The daemon's version; null if none answers. */
const daemonVersion = async (context: CliContext): Promise<string | null> => {
  try {
    return (await context.api.json<{ readonly version: string }>({ method: 'GET', path: '/agent' })).version
  } catch (error) {
    if (isAppError(error)) return null
    throw error
  }
}

export const runVersion = async (context: CliContext): Promise<number> => {
  const daemon = await daemonVersion(context)
  const runtime = `node ${process.versions.node}`
  return printAnswer(context, { ok: true, version: VERSION, runtime, daemon_version: daemon }, async () => {
    await printLine(context, `x0x ${VERSION} (${runtime})`)
    if (daemon === null) return printLine(context, 'no daemon answers')
    const other = daemon === VERSION ? '' : ': another version than this command; restart it, or update one of them'
    return printLine(context, shownLine(`x0xd ${daemon}${other}`))
  })
}
