import { type Clock, systemClock } from '../../base/clock.ts'
import { ensurePrivateDir } from '../../base/file-permissions.ts'
import { removeTemporaries } from '../../base/files.ts'
import type { Logger } from '../../base/log.ts'
import { type Startable, type StartableEntry, type StopFailure, startAll, stopAll } from '../../base/startable.ts'
import { type DataPaths, instanceAt } from '../../clients/paths.ts'
import { type DaemonConfig, dataDirMode } from '../../config/config.ts'
import { shareWithGroup } from '../../config/group-sharing.ts'
import { checkServedRexdConfig } from '../../config/rexd-config.ts'
import type { NetworkSettings } from '../../executor-api/messages.ts'
import type { ReloadOutcome } from '../../executor/acl-reload.ts'
import { ExecCounters } from '../../executor/exec-counters.ts'
import { Executor } from '../../executor/executor.ts'
import type { ApiTokenStore } from '../../executor/operator-auth.ts'
import { DetachedRequestStore } from '../../executor/requested-detached.ts'
import { agentKeyFile, loadOrCreateAgentKey } from '../../identity/agent-key.ts'
import { seedPath } from '../../identity/key-file.ts'
import { rememberMachineId } from '../../identity/machine-id-hash.ts'
import { type MachineKey, loadOrCreateMachineKey } from '../../identity/machine-key.ts'
import { Journal, type JournalComponents } from '../../journal/journal.ts'
import { RunningMarks } from '../../journal/running-marks.ts'
import { AclSigning } from '../../policy/mesh/accepted-acl.ts'
import { type LoadedAcl, loadAcl } from '../../policy/mesh/load-acl.ts'
import { ProcessTrees } from '../../process/process-trees.ts'
import { setOpenFilesOfCommands, setUmaskOfCommands } from '../../process/command-settings.ts'
import { CleanupProcess } from '../../process/cleanup-process.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import { ASKED_BYTES, ASKED_FLOORS, NETWORK_START_MS, REXD_START_MS, REXD_STOP_MS, WATCHDOG_MS } from '../../protocol/limits/daemon.ts'
import { AclCopy, copyToSyslog } from '../../supervision/copies.ts'
import { hostEnrolment, pendingEnrolment } from '../../supervision/enrolment.ts'
import { DeskHost } from '../../supervision/desk-host.ts'
import { Drain, type DrainedPart } from '../../supervision/drain.ts'
import { HandoverServer } from '../../supervision/handover-server.ts'
import { DataDirLock } from '../../supervision/lock.ts'
import { networkSettings, tokensOf } from '../../supervision/network-settings.ts'
import { NetworkSocket } from '../../supervision/network-socket.ts'
import { NetworkSupervisor } from '../../supervision/network-supervisor.ts'
import { type NetworkUser, checkUnreadable, networkUserOf } from '../../supervision/network-user.ts'
import { restartCommand } from '../../supervision/restart-command.ts'
import { RexdSupervisor } from '../../supervision/rexd-supervisor.ts'
import { Contacts } from '../../trust/contacts.ts'
import { loadGroups } from '../../trust/groups.ts'
import { Revocations } from '../../trust/revocations.ts'
import { loadSuccessions } from '../../trust/successions.ts'

export interface Daemon {
  readonly agentId: AgentId
  readonly machineId: MachineId
  /** Address of the API, or the socket for a network process that somebody else starts. */
  readonly where: string
  /** The ACL in force. */
  acl(): LoadedAcl
  /** Address of REXD, or null if it is not served. */
  readonly rexd: string | null
  /** The network process serves. */
  readonly networkIsUp: boolean
  /** False if a part was lost that should have been restarted. */
  readonly isWell: boolean
  /** Lets work end before a stop. */
  readonly drain: Drain
  /** Resolves when another process replaces the daemon, which must then stop. */
  readonly replaced: Promise<void>
  /** Replaces the ACL by a narrower one, and lets REXD reload its certificates. */
  reload(): Promise<ReloadOutcome>
  /** Has this machine enrolled if that is pending. Resolves to false if the daemon stops before. Throws `enrolment_refused`. */
  enrol(): Promise<boolean>
  /** Ends every program first, then everything else. */
  stop(): Promise<readonly StopFailure[]>
}

/** Ending all programs takes at most 3 s, and their last log lines a little more. */
const EXECUTOR_STOP_MS = 5_000

/** Longer than the sum of the deadlines of its parts. */
const DESK_START_MS = 30_000

/** Shared parts of the composition. */
interface Dependencies {
  readonly config: DaemonConfig
  readonly clock: Clock
  readonly log: Logger
  readonly machineKey: MachineKey
  /** How long a child process may be unresponsive. */
  readonly watchdogMs: number
}

interface ComposedExecutor {
  readonly executor: Executor
  readonly agentId: AgentId
  acl(): LoadedAcl
  reload(): Promise<ReloadOutcome>
  enrol(): Promise<boolean>
  readonly entries: readonly StartableEntry[]
}

interface NetworkSide {
  /** Starts the network process before the executor, so that both load at the same time. */
  startAhead(): void
  /** Also throws the errors of `startAhead`. */
  serve(executor: Executor, settings: NetworkSettings): Promise<void>
  /** Safe at any time, and more than once. */
  stop(): Promise<void>
  /** Available after the start. */
  where(): string
  isUp(): boolean
  isInHand(): boolean
}

interface StartInit {
  readonly watchdogMs?: number
  /** Keeps other processes away until this one has the lock of the data directory. Null if it replaces no daemon. */
  readonly successor?: DataDirLock | null
}

/** Starts the executor process and, unless a service manager does, the network process. After an error, no process is left. */
export const startDaemon = async (
  config: DaemonConfig,
  log: Logger,
  { watchdogMs = WATCHDOG_MS, successor = null }: StartInit = {},
): Promise<Daemon> => {
  if (config.rexd_config !== null) await checkServedRexdConfig(config.rexd_config, process.env, config.paths.dir)
  const user = await chooseUser(config, log)
  await ensurePrivateDir(config.paths.dir, dataDirMode(config))
  const apiSocket = config.executor_socket === null ? config.paths.apiSocket : null
  const restart = await restartCommand(instanceAt(config), config.paths)
  const { paths } = config
  const others = successor === null ? { successor: { lock: paths.successorLock, pid: paths.successorPid } } : {}
  const lock = [{ name: 'data directory', startable: new DataDirLock({ ...paths, apiSocket, restart, ...others }) }]
  await startAll(lock)
  await successor?.stop()
  const components = { config, clock: systemClock, log, watchdogMs }
  const network = composeNetworkSide(components, user)
  return startParts(components, lock, { network, user }).catch(async (error: unknown) => {
    await stopAll([...lock, { name: 'network', startable: network }])
    throw error
  })
}

/** User of the network process, or null if it is ours or somebody else starts it. */
const chooseUser = async ({ executor_socket, network_user, paths }: DaemonConfig, log: Logger): Promise<NetworkUser | null> => {
  if (executor_socket !== null) return null
  const user = networkUserOf(network_user, paths.dir)
  if (user === null && process.geteuid?.() === 0) log.warn('network_user = "root": the network process runs as root')
  return user
}

/** Directory of LoadCredential= and LoadCredentialEncrypted= of systemd. */
const CREDENTIALS = process.env['CREDENTIALS_DIRECTORY'] ?? null

/** Files that only the daemon of the data directory writes. */
const OWN_FILES = [
  'pid',
  'networkPid',
  'rexdPid',
  'apiPort',
  'apiToken',
  'metricsToken',
  'agentKey',
  'machineKey',
  'machineIdHash',
  'operatorKey',
  'contacts',
  'revocations',
  'successions',
  'aclVersion',
  'auditLogPath',
  'detachedRuns',
  'enrolKeys',
  'enrolment',
] as const satisfies readonly (keyof DataPaths)[]

const startParts = async (
  components: Omit<Dependencies, 'machineKey'>,
  lock: readonly StartableEntry[],
  { network, user }: { readonly network: NetworkSide; readonly user: NetworkUser | null },
): Promise<Daemon> => {
  const { config } = components
  const { paths } = config
  await removeTemporaries(
    paths.dir,
    OWN_FILES.map((name) => paths[name]),
  )
  await shareWithGroup(config)
  network.startAhead()
  const machineKey = await loadOrCreateMachineKey(config.paths.dir, dataDirMode(config), CREDENTIALS)
  await rememberMachineId(config.paths.dir, machineKey.machineId)
  const dependencies: Dependencies = { ...components, machineKey }
  const tokens = await tokensOf(config)
  const settings = networkSettings({ config, machineKey, tokens })
  const composed = await composeExecutor(dependencies, tokens)
  const serving: Startable = { start: async () => network.serve(composed.executor, settings), stop: async () => network.stop() }
  const agentKey = await seedPath(agentKeyFile(paths.dir), CREDENTIALS)
  const secrets = { start: async () => (user === null ? undefined : checkUnreadable([agentKey, paths.operatorKey], user)) }
  // Started last and stopped first, so that no program outlives a stop, and its Exit still finds a network.
  const programs = { name: 'programs', startable: { stop: () => composed.executor.endRuns() }, deadlineMs: EXECUTOR_STOP_MS }
  const rexd = composeRexdSide(dependencies)
  const { drain, replaced, handover } = composeDrain(dependencies, [composed.executor, ...(rexd === null ? [] : [rexd.supervisor])])
  const started: StartableEntry[] = [
    ...composed.entries,
    { name: 'secrets', startable: secrets },
    ...(rexd?.awaited ?? []),
    { name: 'network', startable: serving, deadlineMs: NETWORK_START_MS },
    programs,
    ...(rexd?.asked ?? []),
    handover,
  ]
  await startAll(started)
  let stopping: Promise<readonly StopFailure[]> | null = null
  return {
    agentId: composed.agentId,
    machineId: machineKey.machineId,
    where: network.where(),
    acl: composed.acl,
    rexd: rexd?.supervisor.where ?? null,
    get networkIsUp() {
      return network.isUp()
    },
    get isWell() {
      return network.isInHand()
    },
    drain,
    replaced,
    reload: async () => {
      if (stopping !== null) return 'unchanged'
      rexd?.supervisor.reload()
      return composed.reload()
    },
    enrol: composed.enrol,
    stop: async () => (stopping ??= stopAll([...lock, ...started])),
  }
}

const composeDrain = (dependencies: Dependencies, parts: readonly DrainedPart[]) => {
  const drain = new Drain(dependencies, parts)
  const { promise: replaced, resolve: onReplaced } = Promise.withResolvers<void>()
  const { handoverSocket: path } = dependencies.config.paths
  const server = new HandoverServer({ ...dependencies, drain }, { path, onReplaced })
  return { drain, replaced, handover: { name: 'handover', startable: server } }
}

const composeNetworkSide = (
  { config, clock, log, watchdogMs }: Omit<Dependencies, 'machineKey'>,
  user: NetworkUser | null,
): NetworkSide => {
  const { executor_socket: path, paths, share_with_group } = config
  if (path !== null) {
    const socket = new NetworkSocket({ clock, log }, { path })
    // Its service manager starts and supervises the network process.
    return {
      startAhead: () => undefined,
      serve: async (executor, settings) => socket.serve(executor, settings),
      stop: async () => socket.stop(),
      where: () => `executor ${path}`,
      isUp: () => socket.isUp,
      isInHand: () => true,
    }
  }
  const [socketMode, portFileMode] = share_with_group ? [0o660, 0o640] : [0o600, 0o600]
  const supervisor = new NetworkSupervisor({ clock, log }, { user, paths, socketMode, portFileMode, watchdogMs })
  return {
    startAhead: () => supervisor.startAhead(),
    serve: async (executor, settings) => supervisor.serve(executor, settings),
    stop: async () => supervisor.stop(),
    where: () => `api 127.0.0.1:${supervisor.apiPort}`,
    isUp: () => supervisor.isUp,
    isInHand: () => supervisor.isInHand,
  }
}

/** Its programs have five seconds to end, so REXD is asked first and awaited last. */
const composeRexdSide = ({ config: { rexd_config, paths }, clock, log }: Dependencies) => {
  if (rexd_config === null) return null
  const supervisor = new RexdSupervisor({ clock, log }, { config: rexd_config, paths })
  const asked: Startable = { start: async () => supervisor.start(), stop: () => supervisor.askToStop() }
  const awaited: Startable = { stop: async () => supervisor.stop() }
  return {
    supervisor,
    asked: [{ name: 'rexd', startable: asked, deadlineMs: 2 * REXD_START_MS }],
    awaited: [{ name: 'end of rexd', startable: awaited, deadlineMs: 2 * REXD_STOP_MS }],
  }
}

/** Null if the ACL has no audit log. */
const journalOf = (components: JournalComponents, { acl, sha256 }: LoadedAcl, { runs }: DataPaths): Journal | null => {
  const { audit_log_path: path } = acl
  if (path === null) return null
  return new Journal(components, { path, marks: new RunningMarks(components, { directory: runs, journal: path }), policySha256: sha256 })
}

const loadTrust = async (paths: DataPaths) => {
  const contacts = new Contacts({ path: paths.contacts })
  const revocations = new Revocations({ path: paths.revocations })
  const [groups] = [await loadGroups(paths.groups), await contacts.load(), await revocations.load()]
  return { contacts, revocations, groups, successions: await loadSuccessions(paths.successions) }
}

/** Composes the executor process, which has no network socket. */
const composeExecutor = async ({ config, clock, log, machineKey }: Dependencies, tokens: ApiTokenStore): Promise<ComposedExecutor> => {
  const { paths, share_with_group: groupMayRead, require_operator_proof: requireOperatorProof, strangers: acceptsUnlisted } = config
  const { contacts, revocations, groups, successions } = await loadTrust(paths)
  const signer = await loadOrCreateAgentKey(paths.dir, dataDirMode(config), CREDENTIALS)
  const pending = await pendingEnrolment(config)
  const askTimeoutMs = config.ask_timeout * 1000
  const counters = new ExecCounters({ clock })
  const { onWritten, entries: copying } = copyToSyslog({ clock, log, counters }, config.syslog)
  const cleanup = new CleanupProcess({ log })
  setUmaskOfCommands()
  const signing = await AclSigning.open({ signers: config.acl_signers, path: paths.aclVersion, revocations })
  // This is the last step that can fail without cleanup below, because it creates groups that must be removed.
  const trees = await ProcessTrees.open({ cleanup, log }, { choice: config.containment, dataDir: paths.dir })
  const load = async () =>
    loadAcl({ path: config.exec_acl, explicit: config.exec_acl_explicit, judge: trees.judge, dataDir: paths.dir, signing }, clock)
  const acl = await load().catch(async (error: unknown) => {
    await trees.stop()
    throw error
  })
  for (const warning of acl.warnings) log.warn(warning)
  await setOpenFilesOfCommands(process.env, acl.acl.caps.max_concurrent_total, log)
  const components = { clock, log, signer, onWritten }
  const journal = journalOf(components, acl, paths)
  const outgoing = new Journal(components, { path: paths.outgoing, marks: null, rate: ASKED_BYTES, floors: ASKED_FLOORS })
  const desk = new DeskHost(
    { clock, log, onWritten },
    { paths, dirMode: dataDirMode(config), groupMayRead, signer, name: 'x0xd', askTimeoutMs },
  )
  const asked = new DetachedRequestStore({ clock, log }, { path: paths.detachedRuns })
  const problem = await asked.load()
  if (problem !== null) log.error({ problem: problem.message }, 'detached runs can be neither started nor listed')
  const enrolment = pending === null ? null : hostEnrolment(config, pending, { judge: trees.judge, signing })
  const held = { asked, contacts, enrolment, revocations, signer, successions, tokens }
  const executor = new Executor(
    { ...held, acl, trees, clock, counters, desk, deskCounts: () => desk.counts(), cleanup, journal, log, outgoing },
    { dataDir: paths.dir, machineId: machineKey.machineId, groupMayRead, requireOperatorProof, acceptsUnlisted, askTimeoutMs, groups },
  )
  const aclCopy = new AclCopy({ clock, log, signing }, { path: paths.loadedAcl, loaded: () => executor.acl })
  return {
    executor,
    agentId: signer.agentId,
    acl: () => executor.acl,
    reload: async () => {
      const outcome = await executor.reload(load)
      if (outcome === 'taken') await aclCopy.renew()
      return outcome
    },
    enrol: async () => executor.enrol(async () => aclCopy.renew()),
    entries: [
      // First, so that it is stopped even if a later start fails.
      { name: 'cells', startable: trees },
      ...copying,
      ...(journal === null ? [] : [{ name: 'journal', startable: journal }]),
      { name: 'copy of the ACL', startable: aclCopy },
      { name: 'outgoing journal', startable: outgoing },
      { name: 'cleanup process', startable: cleanup },
      // Stopping it denies waiting requests, so it stops after the executor.
      { name: 'desk', startable: desk, deadlineMs: DESK_START_MS },
      { name: 'executor', startable: executor, deadlineMs: EXECUTOR_STOP_MS },
    ],
  }
}
