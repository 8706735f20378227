import { systemClock } from '../../base/clock.ts'
import type { Environment } from '../../base/environment.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { printAtStart } from '../../base/log-output.ts'
import { createLogger } from '../../base/log.ts'
import { stopAll } from '../../base/startable.ts'
import { pathsIn } from '../../clients/paths.ts'
import { hostDesk } from '../../supervision/desk-host.ts'
import { logStopFailures, runProgram, stopConditions } from '../../supervision/program-exit.ts'
import { type DeskFlags, parseDeskFlags } from './flags.ts'

/** Mode of a data directory that is made here. */
const PRIVATE_DIR = 0o700

const serve = async ({ dataDir, askTimeoutMs }: DeskFlags): Promise<number> => {
  const log = createLogger({ name: 'x0x-desk' })
  const stop = stopConditions(log, { untilEof: false })
  const paths = pathsIn(dataDir)
  const init = { paths, dirMode: PRIVATE_DIR, groupMayRead: false, signer: null, name: 'x0x desk', askTimeoutMs }
  const { entries } = await hostDesk({ clock: systemClock, log }, init).catch((error: unknown) => {
    if (!isAppError(error, 'conflict')) throw error
    throw new AppError('conflict', `${error.message}: nothing is left to do here; x0x approvals asks that one`, { cause: error })
  })
  printAtStart(`x0x desk: asks humans for ${paths.dir}; x0x approvals watch decides, Ctrl-C ends this\n`)
  await new Promise((resolve) => {
    if (stop.signal.aborted) resolve(null)
    stop.signal.addEventListener('abort', resolve, { once: true })
  })
  logStopFailures(log, await stopAll(entries))
  return stop.status() ?? 0
}

/** Runs `x0x desk` with the words behind it and answers the exit status: 0; 1 where another holds the desk; 2 for flags or files that are wrong; 128+n for a signal. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram('x0x desk', argv, (words) => parseDeskFlags(words, env), serve)
