import { existsSync } from 'node:fs'
import { NEVER } from '../../base/abort.ts'
import { systemClock } from '../../base/clock.ts'
import { counted, shellWord, shellWords } from '../../base/format.ts'
import { type GivenOptions, pasteable } from '../../base/hint.ts'
import { printAtStart } from '../../base/log-output.ts'
import { type Logger, createLogger } from '../../base/log.ts'
import { type Environment, VERSION } from '../../base/runtime.ts'
import { logStages } from '../../base/run-stages.ts'
import {
  DAEMON_STOP_SIGNALS,
  EXIT_FAILURE,
  exitOfSignal,
  firstCrash,
  logStopFailures,
  onStopSignal,
  programExitStatus,
} from '../../cli/exit.ts'
import { type CommandLine, durationOf } from '../../cli/parse.ts'
import { X0XD } from '../../cli/programs.ts'
import { badFlags, runProgram } from '../../cli/program-line.ts'
import { MACHINE_CONFIG, MACHINE_DATA_DIR, instanceChoice, instanceFlags, isMachineMeant } from '../../clients/paths.ts'
import { type ConfigFlags, type DaemonConfig, instanceOf, loadConfig, readConfig } from '../../config/config.ts'
import { makeFirstFiles } from '../../config/first-files.ts'
import { check, checkMachineId, checkUnreadAcl } from '../../doctor/check.ts'
import { doctor } from '../../doctor/doctor.ts'
import { examinerOf } from '../../doctor/examiner.ts'
import { type Finding, reportFindings } from '../../doctor/findings.ts'
import type { ReloadOutcome } from '../../executor/acl-reload.ts'
import { loadPrimitives } from '../../identity/primitives.ts'
import type { WorkList } from '../../protocol/handover.ts'
import { MAX_DRAIN_MS } from '../../protocol/limits/daemon.ts'
import type { Drain } from '../../supervision/drain.ts'
import type { DataDirLock } from '../../supervision/lock.ts'
import { type EnrolFlags, beginEnrolment, isEnrolled } from '../../supervision/enrolment.ts'
import { ReloadSignal } from '../../supervision/reload-signal.ts'
import { replaceHolder } from '../../supervision/replace.ts'
import { ServiceManager } from '../../supervision/service-manager.ts'
import { type Daemon, startDaemon } from './compose.ts'
import { ReplaceProgress, drainText } from './replace-progress.ts'

/** Parsed command line of `x0xd`, or null or empty for missing options. */
export interface DaemonFlags extends ConfigFlags, EnrolFlags {
  readonly mode: 'run' | 'check' | 'doctor'
  readonly json: boolean
  /** Options that hints repeat. */
  readonly given: GivenOptions
  /** Creates missing files first. */
  readonly init: boolean
  /** Ends the running daemon first. */
  readonly replace: boolean
  /** Time for its runs to end by themselves. */
  readonly drainMs: number
}

/** Settings of config.toml with a flag of the same name. Repeatable ones are in LISTS. */
const SETTINGS = ['exec-acl', 'api-port', 'drain-timeout']
const LISTS = ['listen', 'bootstrap']

const drainOf = (text: string): number => {
  const ms = durationOf(text)
  if (ms !== null && ms <= MAX_DRAIN_MS) return ms
  throw badFlags(`--drain must be a duration up to 24h (90s, 5m), not ${JSON.stringify(text)}`, X0XD.name)
}

export const daemonFlags = (line: CommandLine): DaemonFlags => {
  const mode = line.has('check') ? 'check' : line.has('doctor') ? 'doctor' : 'run'
  const one = SETTINGS.filter((flag) => line.has(flag)).map((flag) => [flag, line.value(flag) ?? ''] as const)
  const many = LISTS.filter((flag) => line.has(flag)).map((flag) => [flag, line.values(flag)] as const)
  return {
    mode,
    json: line.has('json'),
    given: line.given,
    init: line.has('init'),
    enrol: line.value('enrol'),
    enrolAs: line.value('enrol-as'),
    append: line.has('append'),
    replace: line.has('replace'),
    drainMs: line.has('drain') ? drainOf(line.value('drain') ?? '') : 0,
    name: line.value('name'),
    config: line.value('config'),
    dataDir: line.value('data-dir'),
    executorSocket: line.value('executor-socket'),
    settings: Object.fromEntries<string | readonly string[]>([...one, ...many]),
  }
}

/** Time for the last output on standard error. */
const LINGER_MS = 50

interface StopRequests {
  /** Resolves when work should end first. */
  readonly drain: Promise<void>
  /** Resolves when the daemon must stop at once. */
  readonly stop: Promise<void>
}

/** With `drains`, the first SIGTERM lets work end. Any other signal stops at once, and one during the stop ends the process. */
const stopRequests = (drains: boolean): StopRequests => {
  const [drain, stop] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let state: 'serving' | 'draining' | 'stopping' = 'serving'
  onStopSignal((signal) => {
    if (state === 'stopping') process.exit(EXIT_FAILURE)
    state = drains && state === 'serving' && signal === 'SIGTERM' ? 'draining' : 'stopping'
    ;(state === 'draining' ? drain : stop).resolve()
  }, DAEMON_STOP_SIGNALS)
  return { drain: drain.promise, stop: stop.promise }
}

/** Resolves when a launcher with an IPC channel is gone, because signals would no longer be passed on. */
const launcherGone = async (): Promise<void> =>
  new Promise((resolve) => {
    if (process.send === undefined) return
    if (!process.connected) return resolve()
    process.once('disconnect', resolve)
    // Waiting for it must not keep the process alive.
    process.channel?.unref()
  })

/** The next step of an operator whose daemon allows nothing. An enrolled machine knows an agent already, and lacks permissions only. */
const nextStep = async (config: DaemonConfig, flags: DaemonFlags): Promise<string> => {
  const own = instanceFlags(flags)
  if (!(await isEnrolled(config))) return shellWords(['x0x', 'invite', 'NAME', ...own])
  return `edit ${shellWord(config.exec_acl)}, or after a denied command: ${shellWords(['x0x', 'acl', 'suggest', ...own])}`
}

/** The permissions of this daemon, or the next step if no command or file is allowed. Patterns count as commands. */
const allowsText = async (config: DaemonConfig, daemon: Daemon, flags: DaemonFlags): Promise<string> => {
  const { acl, status } = daemon.acl()
  const entries = status === 'enabled' ? acl.allow : []
  const commands = entries.reduce((sum, { commands, asking }) => sum + commands.length + asking.patterns.length, 0)
  const roots = entries.reduce((sum, { files }) => sum + files.length, 0)
  const allowed = [...(commands > 0 ? [counted(commands, 'command')] : []), ...(roots > 0 ? [`files below ${counted(roots, 'root')}`] : [])]
  return allowed.length === 0 ? `Nothing is allowed yet. Next: ${await nextStep(config, flags)}` : `The ACL allows ${allowed.join(' and ')}`
}

/** Two lines for programs, with full IDs and the permissions. One short line on a terminal. */
const readyText = async (config: DaemonConfig, daemon: Daemon, flags: DaemonFlags): Promise<string> => {
  const allows = await allowsText(config, daemon, flags)
  if (process.stdout.isTTY) return `x0xd ready. ${allows}\n`
  const { agentId, machineId, where, rexd } = daemon
  const served = rexd === null ? '' : `, rexd ${rexd}`
  return `x0xd ${VERSION} ready: agent ${agentId}, machine ${machineId}, ${where}, exec ${daemon.acl().status}${served}, data ${config.paths.dir}\n${allows}\n`
}

const warningText = ({ text, remedy }: Finding): string => `x0xd: warning: ${text}\n${remedy?.replace(/^/gm, '  Try: ') ?? ''}\n`

/** Shown in `systemctl status` after a reload. */
export const RELOADED: Readonly<Record<ReloadOutcome, string>> = {
  taken: '; the new ACL is in force',
  unchanged: '',
  refused: '; the ACL file allows more than the loaded one and was not loaded: restart x0xd',
  invalid: '; the ACL file is not valid, and the old one stays in force',
}

const statusLine = ({ acl, agentId, where, networkIsUp, drain }: Daemon, reloaded: ReloadOutcome): string =>
  `${drain.isOn ? 'draining; ' : ''}agent ${agentId}, ${where}, exec ${acl().status}, network process ${networkIsUp ? 'up' : 'down'}${RELOADED[reloaded]}`

/** Has this machine enrolled if that is pending, then says that the daemon is ready. Resolves only if the enrolment failed. */
const serve = async (config: DaemonConfig, daemon: Daemon, flags: DaemonFlags): Promise<{ readonly unenrolled: unknown }> => {
  try {
    if (await daemon.enrol()) await sayReady(config, daemon, flags)
  } catch (error) {
    return { unenrolled: error }
  }
  return new Promise(() => undefined)
}

const sayReady = async (config: DaemonConfig, daemon: Daemon, flags: DaemonFlags): Promise<void> => {
  const warnings = [...(await checkMachineId(config)), ...(await checkUnreadAcl(config, config.exec_acl))]
  printAtStart((await readyText(config, daemon, flags)) + pasteable(warnings.map(warningText).join(''), flags.given))
}

/** Lets work end after a signal, unless another process drains the daemon already. */
const drainFor = async ({ drain }: Daemon, ms: number, manager: ServiceManager): Promise<void> => {
  const onProgress = (leftMs: number, { total }: WorkList): void => manager.draining(drainText(total, leftMs), leftMs)
  if (!drain.isOn) await drain.run({ ms, signal: NEVER, onProgress })
}

const logEnded = (log: Logger, { isOn, work }: Drain): void => {
  if (!isOn || work.total === 0) return
  log.warn({ runs: work.total }, 'the drain is over, and ends what still runs')
  for (const { kind, id, who, argv } of work.work) log.warn({ kind, id, who, argv }, 'ended by the end of a drain')
}

const run = async ({ config, successor }: Start, flags: DaemonFlags, reloads: ReloadSignal): Promise<number> => {
  const log = createLogger({ name: 'x0xd', level: config.log_level })
  if (config.log_level === 'debug') logStages(log)
  // Before anything starts, so that no signal comes before its handler.
  const drainMs = config.drain_timeout * 1000
  const asked = stopRequests(drainMs > 0)
  const crash = firstCrash(log, { unhandledRejections: 'stop' })
  const manager = ServiceManager.here(log)
  const daemon = await startDaemon(config, log, { watchdogMs: manager.watchdogMs, successor })
  let reloaded: ReloadOutcome = 'unchanged'
  // A service manager does not wait for an operator who may be down for hours.
  manager.ready({ status: () => statusLine(daemon, reloaded), isWell: () => daemon.isWell })
  reloads.serve({ log, manager, work: async () => (reloaded = await daemon.reload()) })
  const drained = asked.drain.then(async () => drainFor(daemon, drainMs, manager))
  const reason = await Promise.race([asked.stop, launcherGone(), drained, daemon.replaced, crash, serve(config, daemon, flags)])
  logEnded(log, daemon.drain)
  manager.stopping()
  const failures = await daemon.stop()
  logStopFailures(log, failures)
  const refused = reason !== undefined && 'unenrolled' in reason ? reason : null
  const status =
    refused === null ? (reason === undefined && failures.length === 0 ? 0 : EXIT_FAILURE) : programExitStatus(refused.unenrolled)
  // A library's idle timer must not keep the stopped process for another second.
  setTimeout(() => process.exit(status), LINGER_MS).unref()
  if (refused !== null) throw refused.unenrolled
  return status
}

/** A start, with the lock of a successor that replaced a daemon. */
interface Start {
  readonly config: DaemonConfig
  readonly successor: DataDirLock | null
}

/** With `--replace`, ends the running daemon after our own configuration was checked. Until it ends, a signal leaves it running. */
const startOf = async (flags: DaemonFlags, env: Environment): Promise<Start> => {
  const config = await loadConfig(flags, env)
  if (flags.init) await beginEnrolment(config, flags, env)
  else if (env['X0X_ENROL'] !== undefined)
    process.stderr.write('x0xd: warning: X0X_ENROL has no effect without --init\n  Try: add --init, or remove the variable\n')
  if (!flags.replace) return { config, successor: null }
  const shown = new ReplaceProgress(process.stderr)
  const stopListening = onStopSignal((signal) => {
    void shown.cancelled().finally(() => process.exit(exitOfSignal(signal)))
  }, DAEMON_STOP_SIGNALS)
  const onEnding = async (ended: WorkList | null): Promise<void> => {
    stopListening()
    await shown.ending(ended)
  }
  try {
    const { drainMs } = flags
    const replace = { ...config, drainMs, onProgress: async (ms: number, work: WorkList) => shown.progress(ms, work), onEnding }
    return { config, successor: await replaceHolder(replace, systemClock) }
  } finally {
    stopListening()
  }
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
      return run(await startOf(flags, env), flags, reloads)
  }
}

/** Runs `x0xd` and returns the exit status, which is 0 for success, 2 for configuration, flags or ACL, and 1 for other errors. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(X0XD, argv, async (line) => dispatch(daemonFlags(line), env))
