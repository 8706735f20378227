import { homedir } from 'node:os'

import { aborted } from '../../base/abortable.ts'
import type { Environment } from '../../base/environment.ts'
import { createLogger } from '../../base/log.ts'
import { PlainScreen } from '../../doors/console/screen.ts'
import { logStopFailures, reportFailure, stopConditions } from '../../supervision/program-exit.ts'
import { startHost } from './compose.ts'
import { parseHostFlags, type HostFlags } from './flags.ts'

const tell = (text: string): void => void process.stderr.write(`${text}\n`)

const fromHome = (path: string): string => (path.startsWith(`${homedir()}/`) ? `~${path.slice(homedir().length)}` : path)

const serve = async ({ silent, addPath, recordEnv }: HostFlags, env: Environment): Promise<number> => {
  const log = createLogger({ name: 'rexec' })
  const stop = stopConditions(log, { untilEof: false })
  if (process.geteuid?.() === 0) tell('rexec: this host runs as root: whatever runs as root here can have it run anything')
  const write = (text: string): void => void (silent || process.stdout.write(text))
  const host = await startHost(env, { addPath, recordEnv, screen: () => new PlainScreen({ write }) }, log)
  if (!silent) {
    for (const socket of host.sockets) tell(`rexec host listening on ${socket}`)
    tell(`rexec transcript: ${fromHome(host.transcript)}`)
  }
  await aborted(AbortSignal.any([stop.signal, host.stopped]))
  const failures = await host.stop()
  logStopFailures(log, failures)
  if (!silent) tell('rexec host: shutdown')
  // A signal is how it is ended.
  const status = stop.status()
  return failures.length > 0 || status === 1 ? 1 : 0
}

/** Runs the host of a console and answers the exit status: 0; 2 for flags; 1 for anything else, another host among it. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> => {
  try {
    const flags = parseHostFlags(argv)
    if (typeof flags !== 'string') return await serve(flags, env)
    process.stdout.write(flags)
    return 0
  } catch (error) {
    return reportFailure('rexec', error)
  }
}
