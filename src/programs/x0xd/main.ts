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

/** Parsed command line of `x0xd`, or null or empty for missing options. */
export interface DaemonFlags extends ConfigFlags {
  readonly mode: 'run' | 'check' | 'doctor'
  readonly json: boolean
  /** Options that hints repeat. */
  readonly given: GivenOptions
  /** Creates missing files first. */
  readonly init: boolean
  /** Ends the running daemon first. */
  readonly replace: boolean
}

/** Settings of config.toml with a flag of the same name. Repeatable ones are in LISTS. */
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

/** Time for the last output on standard error. */
const LINGER_MS = 50

/** Resolves at the first stop signal. The second ends the process at once. */
const stopSignal = async (): Promise<void> =>
  new Promise((resolve) => {
    let stopping = false
    onStopSignal(() => {
      if (stopping) process.exit(EXIT_FAILURE)
      stopping = true
      resolve()
    }, DAEMON_STOP_SIGNALS)
  })

/** Resolves when a launcher with an IPC channel is gone, because signals would no longer be passed on. */
const launcherGone = async (): Promise<void> =>
  new Promise((resolve) => {
    if (process.send === undefined) return
    if (!process.connected) return resolve()
    process.once('disconnect', resolve)
    // Waiting for it must not keep the process alive.
    process.channel?.unref()
  })

/** The permissions of this daemon, or the next step if it allows no commands. */
const allowsText = ({ allowedCommands: count }: Daemon, flags: DaemonFlags): string =>
  count === 0
    ? `Nothing is allowed yet. Next: ${shellWords(['x0x', 'invite', 'NAME', ...instanceFlags(flags)])}`
    : `The ACL allows ${counted(count, 'command')}`

/** Two lines for programs, with full IDs and the permissions. One short line on a terminal. */
const readyText = ({ paths }: DaemonConfig, daemon: Daemon, flags: DaemonFlags): string => {
  const allows = allowsText(daemon, flags)
  if (process.stdout.isTTY) return `x0xd ready. ${allows}\n`
  const { agentId, machineId, where, execStatus, rexd } = daemon
  const served = rexd === null ? '' : `, rexd ${rexd}`
  return `x0xd ${VERSION} ready: agent ${agentId}, machine ${machineId}, ${where}, exec ${execStatus}${served}, data ${paths.dir}\n${allows}\n`
}

const warningText = ({ text, remedy }: Finding): string => `x0xd: warning: ${text}\n${remedy?.replace(/^/gm, '  Try: ') ?? ''}\n`

/** Shown in `systemctl status` after a reload. */
export const RELOADED: Readonly<Record<ReloadOutcome, string>> = {
  taken: '; the ACL was read again and is in force',
  unchanged: '',
  refused: '; the ACL file allows more than the loaded one and was not loaded: restart x0xd',
  invalid: '; the ACL file is not valid and was not taken',
}

const statusLine = ({ agentId, where, execStatus, networkIsUp }: Daemon, reloaded: ReloadOutcome): string =>
  `agent ${agentId}, ${where}, exec ${execStatus}, network process ${networkIsUp ? 'up' : 'down'}${RELOADED[reloaded]}`

const run = async (config: DaemonConfig, flags: DaemonFlags, reloads: ReloadSignal): Promise<number> => {
  const log = createLogger({ name: 'x0xd', level: config.log_level })
  if (config.log_level === 'debug') logStages(log)
  // Before anything starts, so that no signal comes before its handler.
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
  // A library's idle timer must not keep the stopped process for another second.
  setTimeout(() => process.exit(status), LINGER_MS).unref()
  return status
}

/** With `--replace`, ends the running daemon after our own configuration was checked. */
const configOf = async (flags: DaemonFlags, env: Environment): Promise<DaemonConfig> => {
  const config = await loadConfig(flags, env)
  if (flags.replace) await endHolder(config)
  return config
}

const init = async (flags: DaemonFlags, env: Environment): Promise<void> => {
  const { name, paths } = instanceOf(flags, env)
  await makeFirstFiles(paths, { name, displayName: null, reachable: true }, { dryRun: false })
}

/** For root without a separate daemon, examines the machine's daemon as its unit starts it. */
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
  // First, so that SIGHUP does not end a starting daemon.
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

/** Runs `x0xd` and returns the exit status, which is 0 for success, 2 for configuration, flags or ACL, and 1 for other errors. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(X0XD, argv, async (line) => dispatch(daemonFlags(line), env))
