import { existsSync } from 'node:fs'
import { counted, shellWords } from '../../base/format.ts'
import { type GivenOptions, pasteable } from '../../base/hint.ts'
import { printAtStart } from '../../base/log-output.ts'
import { createLogger } from '../../base/log.ts'
import { type Environment, VERSION } from '../../base/runtime.ts'
import { logStages } from '../../base/run-stages.ts'
import { DAEMON_STOP_SIGNALS, EXIT_FAILURE, firstCrash, logStopFailures, onStopSignal } from '../../cli/exit.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { X0XD } from '../../cli/programs.ts'
import { runProgram } from '../../cli/program-line.ts'
import { MACHINE_CONFIG, MACHINE_DATA_DIR, instanceChoice, instanceFlags, isMachineMeant } from '../../clients/paths.ts'
import { type ConfigFlags, type DaemonConfig, instanceOf, loadConfig, readConfig } from '../../config/config.ts'
import { makeFirstFiles } from '../../config/first-files.ts'
import { check, checkMachineId, checkUnreadAcl } from '../../doctor/check.ts'
import { doctor } from '../../doctor/doctor.ts'
import { examinerOf } from '../../doctor/examiner.ts'
import { type Finding, reportFindings } from '../../doctor/findings.ts'
import type { ReloadOutcome } from '../../executor/acl-reload.ts'
import { loadPrimitives } from '../../identity/primitives.ts'
import { endHolder } from '../../supervision/lock.ts'
import { ReloadSignal } from '../../supervision/reload-signal.ts'
import { ServiceManager } from '../../supervision/service-manager.ts'
import { type Daemon, startDaemon } from './compose.ts'

/** What the command line of `x0xd` says; null or empty where it is silent. */
export interface DaemonFlags extends ConfigFlags {
  readonly mode: 'run' | 'check' | 'doctor'
  readonly json: boolean
  /** For hints. */
  readonly given: GivenOptions
  /** Makes what is missing first. */
  readonly init: boolean
  /** Ends the daemon that is there first. */
  readonly replace: boolean
}

/** Settings of config.toml that have a flag of the same name; those that may be repeated are lists. */
const SETTINGS = ['exec-acl', 'api-port']
const LISTS = ['listen', 'bootstrap']

export const daemonFlags = (line: CommandLine): DaemonFlags => {
  const mode = line.has('check') ? 'check' : line.has('doctor') ? 'doctor' : 'run'
  const one = SETTINGS.filter((flag) => line.has(flag)).map((flag) => [flag, line.value(flag) ?? ''] as const)
  const many = LISTS.filter((flag) => line.has(flag)).map((flag) => [flag, line.values(flag)] as const)
  return {
    mode,
    json: line.has('json'),
    given: line.given,
    init: line.has('init'),
    replace: line.has('replace'),
    name: line.value('name'),
    config: line.value('config'),
    dataDir: line.value('data-dir'),
    executorSocket: line.value('executor-socket'),
    settings: Object.fromEntries<string | readonly string[]>([...one, ...many]),
  }
}

/** Time for the last words on standard error. */
const LINGER_MS = 50

/** Resolves at the first stop signal; the second ends the process at once. */
const stopSignal = async (): Promise<void> =>
  new Promise((resolve) => {
    let stopping = false
    onStopSignal(() => {
      if (stopping) process.exit(EXIT_FAILURE)
      stopping = true
      resolve()
    }, DAEMON_STOP_SIGNALS)
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

/** What this daemon allows, and the next step where that is nothing. */
const allowsText = ({ allowedCommands: count }: Daemon, flags: DaemonFlags): string =>
  count === 0
    ? `Nothing is allowed yet. Next: ${shellWords(['x0x', 'invite', 'NAME', ...instanceFlags(flags)])}`
    : `The ACL allows ${counted(count, 'command')}`

/** Two lines for programs: the first has the full IDs, the second says what is allowed. At a terminal one short line. */
const readyText = ({ paths }: DaemonConfig, daemon: Daemon, flags: DaemonFlags): string => {
  const allows = allowsText(daemon, flags)
  if (process.stdout.isTTY) return `x0xd ready. ${allows}\n`
  const { agentId, machineId, where, execStatus, rexd } = daemon
  const served = rexd === null ? '' : `, rexd ${rexd}`
  return `x0xd ${VERSION} ready: agent ${agentId}, machine ${machineId}, ${where}, exec ${execStatus}${served}, data ${paths.dir}\n${allows}\n`
}

const warningText = ({ text, remedy }: Finding): string => `x0xd: warning: ${text}\n${remedy?.replace(/^/gm, '  Try: ') ?? ''}\n`

/** What an operator who asked for it finds in `systemctl status`. */
const RELOADED: Readonly<Record<ReloadOutcome, string>> = {
  taken: '; the ACL was read again and is in force',
  unchanged: '',
  refused: '; the ACL file allows more than what is in force and was not taken: a restart is needed',
  invalid: '; the ACL file is not valid and was not taken',
}

const statusLine = ({ agentId, where, execStatus, networkIsUp }: Daemon, reloaded: ReloadOutcome): string =>
  `agent ${agentId}, ${where}, exec ${execStatus}, network half ${networkIsUp ? 'up' : 'not there'}${RELOADED[reloaded]}`

const run = async (config: DaemonConfig, flags: DaemonFlags, reloads: ReloadSignal): Promise<number> => {
  const log = createLogger({ name: 'x0xd', level: config.log_level })
  if (config.log_level === 'debug') logStages(log)
  // Before anything is started, so that no signal finds the process without its handler.
  const stopping = Promise.race([stopSignal(), launcherGone()])
  const crash = firstCrash(log, { unhandledRejections: 'stop' })
  const manager = ServiceManager.here(log)
  const daemon = await startDaemon(config, log, manager.watchdogMs)
  const warnings = [...(await checkMachineId(config)), ...(await checkUnreadAcl(config, config.exec_acl))]
  printAtStart(readyText(config, daemon, flags) + pasteable(warnings.map(warningText).join(''), flags.given))
  let reloaded: ReloadOutcome = 'unchanged'
  manager.ready({ status: () => statusLine(daemon, reloaded), isWell: () => daemon.isWell })
  reloads.serve({ log, manager, work: async () => (reloaded = await daemon.reload()) })
  const reason = await Promise.race([stopping, crash])
  manager.stopping()
  const failures = await daemon.stop()
  logStopFailures(log, failures)
  const status = reason === undefined && failures.length === 0 ? 0 : EXIT_FAILURE
  // All is stopped; a library's idle timer must not keep the process for another second.
  setTimeout(() => process.exit(status), LINGER_MS).unref()
  return status
}

/** Where another daemon is to make way, it does so when all that can be known to be wrong with ours is not. */
const configOf = async (flags: DaemonFlags, env: Environment): Promise<DaemonConfig> => {
  const config = await loadConfig(flags, env)
  if (flags.replace) await endHolder(config)
  return config
}

const init = async (flags: DaemonFlags, env: Environment): Promise<void> => {
  const { name, paths } = instanceOf(flags, env)
  await makeFirstFiles(paths, { name, displayName: null, reachable: true }, { dryRun: false })
}

/** Root without a daemon of its own examines that of the machine, as its unit starts it. */
const ofMachine = (flags: DaemonFlags, env: Environment): DaemonFlags =>
  process.geteuid?.() === 0 && isMachineMeant(instanceChoice(flags, env))
    ? { ...flags, dataDir: MACHINE_DATA_DIR, config: flags.config ?? (existsSync(MACHINE_CONFIG) ? MACHINE_CONFIG : null) }
    : flags

const examine = async (said: DaemonFlags, env: Environment): Promise<number> => {
  const flags = ofMachine(said, env)
  const examiner = await examinerOf(instanceOf(flags, env).paths.dir)
  return reportFindings(await doctor(await readConfig(flags, env), examiner, env), flags)
}

const dispatch = async (flags: DaemonFlags, env: Environment): Promise<number> => {
  // Before anything else: a start is not ended by it either.
  const reloads = new ReloadSignal()
  await loadPrimitives()
  switch (flags.mode) {
    case 'check':
      return reportFindings(await check(await readConfig(flags, env)), flags)
    case 'doctor':
      return examine(flags, env)
    case 'run':
      if (flags.init) await init(flags, env)
      return run(await configOf(flags, env), flags, reloads)
  }
}

/** Runs `x0xd` with the words behind its name and answers the exit status: 0; 2 for configuration, flags or ACL; 1 for anything else. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(X0XD, argv, async (line) => dispatch(daemonFlags(line), env))
