import { aborted } from '../../base/abort.ts'
import { systemClock } from '../../base/clock.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { printAtStart } from '../../base/log-output.ts'
import { createLogger } from '../../base/log.ts'
import type { Environment } from '../../base/runtime.ts'
import { stopAll } from '../../base/startable.ts'
import { logStopFailures, stopConditions } from '../../cli/exit.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags, runProgram } from '../../cli/program-line.ts'
import { DESK } from '../../cli/programs.ts'
import { dataDirOf, instanceChoice, pathsIn } from '../../clients/paths.ts'
import { MAX_ASK_TIMEOUT_MS } from '../../protocol/limits/approvals.ts'
import { hostDesk } from '../../supervision/desk-host.ts'

export interface DeskFlags {
  readonly dataDir: string
  readonly askTimeoutMs: number
}

const timeoutOf = (text: string): number => {
  const ms = Number(text) * 1000
  if (/^[0-9]{1,4}$/.test(text) && ms > 0 && ms <= MAX_ASK_TIMEOUT_MS) return ms
  throw badFlags(`--ask-timeout: ${JSON.stringify(text)} is not a number of seconds from 1 to ${MAX_ASK_TIMEOUT_MS / 1000}`, DESK.name)
}

/** Throws `bad_config` naming the flag that is wrong. */
export const deskFlags = (line: CommandLine, env: Environment): DeskFlags => ({
  dataDir: dataDirOf(instanceChoice({ name: line.value('name'), dataDir: line.value('data-dir') }, env)),
  askTimeoutMs: timeoutOf(line.value('ask-timeout') ?? ''),
})

/** Mode of a new data directory. */
const PRIVATE_DIR = 0o700

const serve = async ({ dataDir, askTimeoutMs }: DeskFlags): Promise<number> => {
  const log = createLogger({ name: 'x0x-desk' })
  const stop = stopConditions(log, { untilEof: false })
  const paths = pathsIn(dataDir)
  const init = { paths, dirMode: PRIVATE_DIR, groupMayRead: false, signer: null, name: 'x0x desk', askTimeoutMs }
  const { entries } = await hostDesk({ clock: systemClock, log }, init).catch((error: unknown) => {
    if (!isAppError(error, 'conflict')) throw error
    throw new AppError('conflict', `${error.message}: x0x approvals uses that one`, { cause: error })
  })
  printAtStart(`x0x desk: approval service for ${paths.dir}. To decide: x0x approvals watch. Ctrl-C stops it\n`)
  await aborted(stop.signal)
  logStopFailures(log, await stopAll(entries))
  return stop.status() ?? 0
}

/** Returns the exit status: 0; 1 if another process hosts the approval service; 2 for wrong flags or files; 128+n for a signal. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(DESK, argv, async (line) => serve(deskFlags(line, env)))
