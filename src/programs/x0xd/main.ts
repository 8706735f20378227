import { ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import { createLogger } from '../../base/log.ts'
import { logStages } from '../../base/stages.ts'
import { VERSION } from '../../base/version.ts'
import { check } from '../../doctor/check.ts'
import { startDaemon, type Daemon } from './compose.ts'
import type { Environment } from '../../base/environment.ts'
import { instanceOf, loadConfig, readConfig, type DaemonConfig } from '../../config/config.ts'
import { doctor } from '../../doctor/doctor.ts'
import { examinerOf } from '../../doctor/examiner.ts'
import { findingsJson, findingsText, isWell, type Finding } from '../../doctor/findings.ts'
import { parseDaemonFlags, type DaemonFlags } from './flags.ts'
import { firstCrash } from '../../supervision/crash-handler.ts'

/** Configuration, flags or ACL are wrong. */
const EXIT_BAD_CONFIG = 2
const EXIT_FAILURE = 1

/** Time for the last words on standard error. */
const LINGER_MS = 50

const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const

const report = (flags: DaemonFlags, findings: readonly Finding[]): number => {
  process.stdout.write(flags.json ? findingsJson(findings) : findingsText(findings))
  return isWell(findings) ? 0 : EXIT_BAD_CONFIG
}

/** Resolves at the first stop signal; the second ends the process at once. */
const stopSignal = async (): Promise<void> =>
  new Promise((resolve) => {
    for (const signal of STOP_SIGNALS) {
      process.once(signal, () => {
        for (const again of STOP_SIGNALS) process.on(again, () => process.exit(EXIT_FAILURE))
        resolve()
      })
    }
  })

/** Resolves when the launcher that started us with a channel to itself is gone: nobody else would pass signals on. */
const launcherGone = async (): Promise<void> =>
  new Promise((resolve) => {
    if (process.send === undefined) return
    if (!process.connected) return resolve()
    process.once('disconnect', resolve)
    // To wait for that alone keeps no process.
    process.channel?.unref()
  })

const readyLine = ({ paths }: DaemonConfig, { agentId, machineId, where, execStatus, rexd }: Daemon): string => {
  const served = rexd === null ? '' : `, rexd ${rexd}`
  return `x0xd ${VERSION} ready: agent ${agentId}, machine ${machineId}, ${where}, exec ${execStatus}${served}, data ${paths.dir}\n`
}

const run = async (config: DaemonConfig): Promise<number> => {
  const log = createLogger({ name: 'x0xd', level: config.log_level })
  if (config.log_level === 'debug') logStages(log)
  // Whoever has read our lines may leave; we go on.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
  // Before anything is started, so that no signal finds the process without its handler.
  const stopping = Promise.race([stopSignal(), launcherGone()])
  const crash = firstCrash(log, { strays: 'stop' })
  const daemon = await startDaemon(config, log)
  process.stdout.write(readyLine(config, daemon))
  const reason = await Promise.race([stopping, crash])
  const failures = await daemon.stop()
  for (const failure of failures) log.error({ part: failure.name, err: errorText(failure.error) }, 'a part did not stop well')
  const status = reason === undefined && failures.length === 0 ? 0 : EXIT_FAILURE
  // All is stopped; a library's idle timer must not keep the process for another second.
  setTimeout(() => process.exit(status), LINGER_MS).unref()
  return status
}

const dispatch = async (flags: DaemonFlags, env: Environment): Promise<number> => {
  switch (flags.mode) {
    case 'help':
    case 'version':
      process.stdout.write(flags.text)
      return 0
    case 'check':
      return report(flags, await check(await readConfig(flags, env)))
    case 'doctor': {
      const examiner = await examinerOf(instanceOf(flags, env).paths.dir)
      return report(flags, await doctor(await readConfig(flags, env), examiner, env))
    }
    case 'run':
      return run(await loadConfig(flags, env))
  }
}

/** Runs `x0xd` with the words behind its name and answers the exit status: 0; 2 for configuration, flags or ACL; 1 for anything else. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> => {
  try {
    return await dispatch(parseDaemonFlags(argv, VERSION), env)
  } catch (error) {
    process.stderr.write(
      `${errorText(error)
        .split('\n')
        .map((line) => `x0xd: ${line}`)
        .join('\n')}\n`,
    )
    return isAppError(error) && ERROR_TABLE[error.code].exit === EXIT_BAD_CONFIG ? EXIT_BAD_CONFIG : EXIT_FAILURE
  }
}
