import { stat } from 'node:fs/promises'
import { isDeepStrictEqual } from 'node:util'
import { errorText } from '../base/errors.ts'
import { type ProcessIdentity, processState } from '../base/process-info.ts'
import type { Environment } from '../base/runtime.ts'
import { LocalApi } from '../clients/daemon.ts'
import { type DataPaths, instanceAt } from '../clients/paths.ts'
import type { DaemonConfig } from '../config/config.ts'
import type { ExecDiagnostics } from '../executor/exec-counters.ts'
import { inspectAcl } from '../policy/mesh/load-acl.ts'
import { shortId } from '../protocol/ids.ts'
import { holderText, readPidFile } from '../supervision/lock.ts'
import { userCommand, userNameOf } from '../supervision/network-user.ts'
import { restartCommand } from '../supervision/restart-command.ts'
import { type Group, inspectGroups } from '../trust/groups.ts'
import { aclCounts, aclDoubts, checkUnreadAcl } from './check.ts'
import { checkExecFiles } from './exec-files.ts'
import { type Finding, fail, ok, warn } from './findings.ts'
import { differenceOf, remedyOf } from './loaded-acl.ts'
import { type MeshReport, type PeerConnections, checkMesh, checkPeers } from './mesh-check.ts'
import { REXD_TOPIC } from './rexd-check.ts'

interface RunningAnswers {
  readonly agent: { readonly agent_id: string; readonly machine_id: string }
  readonly peers: PeerConnections
  readonly mesh: MeshReport
  readonly contacts: { readonly groups: readonly Group[] }
  readonly exec: Pick<ExecDiagnostics, 'acl_summary'> & {
    readonly journal: ExecDiagnostics['journal']
    readonly outgoing_journal: { readonly path: string; readonly writable: boolean }
  }
}

const apiOf = ({ name, paths }: DaemonConfig, env: Environment): LocalApi =>
  new LocalApi({ instance: { name, dataDir: paths.dir }, url: null, env })

const ask = async (config: DaemonConfig, env: Environment): Promise<RunningAnswers> => {
  const api = apiOf(config, env)
  const get = async <K extends keyof RunningAnswers>(path: string): Promise<RunningAnswers[K]> => api.json({ method: 'GET', path })
  const [agent, peers, mesh, contacts, exec] = await Promise.all([
    get<'agent'>('/agent'),
    get<'peers'>('/peers'),
    get<'mesh'>('/diagnostics/mesh'),
    get<'contacts'>('/contacts'),
    get<'exec'>('/diagnostics/exec'),
  ])
  return { agent, peers, mesh, contacts, exec }
}

/** The ACL that the daemon enforces, and whether its file has changed since. */
const checkLoadedAcl = async (
  { paths }: DaemonConfig,
  summary: RunningAnswers['exec']['acl_summary'],
  restart: string,
): Promise<Finding[]> => {
  const { loaded_from: path, loaded_at, disabled_reason } = summary
  const counts = aclCounts(summary.allow_entry_count, summary.command_entry_count)
  const state = disabled_reason === null ? 'enabled' : `disabled (${disabled_reason})`
  const loaded =
    disabled_reason === 'acl_missing'
      ? ok('ACL', `the running daemon found no ACL file at ${path}, so exec is disabled`)
      : ok('ACL', `the running daemon uses ${path}, read ${loaded_at}: exec ${state}, ${counts}`)
  const now = await inspectAcl(path, null, { dataDir: paths.dir })
  const difference = differenceOf(summary, now)
  if (difference !== null) return [loaded, warn('ACL', `not in force: ${difference}`, remedyOf(now, restart))]
  if (now.missing) return [loaded]
  // The daemon reports itself whether it can write. This process may be another user.
  const files = (await checkExecFiles(path)).filter(({ topic }) => topic !== 'audit log')
  return [loaded, ...aclDoubts(now), ...files]
}

/** Whether the configuration has changed since the daemon read it. */
const checkLoadedConfig = async ({ config_file, paths }: DaemonConfig, restart: string): Promise<Finding[]> => {
  const [config, start] = await Promise.all([stat(config_file ?? '').catch(() => null), stat(paths.pid).catch(() => null)])
  if (config === null || start === null || config.mtimeMs <= start.mtimeMs) return []
  return [warn('configuration', `not in force: ${config_file} has changed since x0xd started`, restart)]
}

const wordsByName = (groups: readonly Group[]): Map<string, readonly string[]> => new Map(groups.map(({ name, words }) => [name, words]))

/** Whether the groups have changed since the daemon read them. Other findings report a wrong file. */
const checkLoadedGroups = async ({ paths }: DaemonConfig, loaded: readonly Group[], restart: string): Promise<Finding[]> => {
  const { groups, problems } = await inspectGroups(paths.groups)
  if (problems.length > 0 || isDeepStrictEqual(wordsByName(groups), wordsByName(loaded))) return []
  return [warn('groups', `not in force: ${paths.groups} has changed since x0xd read it`, restart)]
}

const checkJournal = (journal: RunningAnswers['exec']['journal']): Finding[] => {
  if (journal === null || journal.path === null) return [ok('audit log', 'the running daemon does not need one')]
  if (journal.writable) return [ok('audit log', `${journal.path}; the running daemon can write it`)]
  return [
    fail('audit log', `the running daemon cannot write ${journal.path}: every request is denied`, 'free disk space or fix its permissions'),
  ]
}

const checkRequestLog = ({ path, writable }: RunningAnswers['exec']['outgoing_journal']): Finding =>
  writable
    ? ok('request log', `${path}; the running daemon can write it`)
    : fail('request log', `the running daemon cannot write ${path}: it sends no requests`, 'free disk space or fix its permissions')

const whoRuns = (where: string, { agent_id, machine_id }: RunningAnswers['agent']): Finding =>
  ok('daemon', `runs${where}: agent ${shortId(agent_id)}, machine ${shortId(machine_id)}`)

/** For a user who has the token but cannot read the data directory. Throws if the daemon does not answer. */
export const askWhoRuns = async (config: DaemonConfig, env: Environment): Promise<Finding> =>
  whoRuns('', await apiOf(config, env).json({ method: 'GET', path: '/agent' }))

/** The user of a process on Linux, or null if the system does not tell. */
const uidOf = async (pid: number): Promise<number | null> => (await stat(`/proc/${pid}`).catch(() => null))?.uid ?? null

const withUser = (pid: number, uid: number | null): string => `pid ${pid}${uid === null ? '' : ` as ${userNameOf(uid)}`}`

const described = async (pid: number): Promise<string> => withUser(pid, await uidOf(pid))

/** Both processes of a running daemon, and whether the network process runs as root. */
const checkProcesses = async (paths: DataPaths, executorPid: number): Promise<Finding> => {
  const executor = `executor ${await described(executorPid)}`
  const claim = await readPidFile(paths.networkPid)
  if (claim === null) return ok('processes', `${executor}; the network process is started separately`)
  if (processState(claim) === 'gone')
    return fail('processes', `${executor}; the network process has ended and is being restarted`, 'see its log')
  const networkUid = await uidOf(claim.pid)
  const text = `${executor}; network ${withUser(claim.pid, networkUid)}`
  if (networkUid !== 0) return ok('processes', text)
  return warn('processes', `${text}: the network process runs as root`, `${userCommand('x0x')}, and leave network_user out`)
}

const checkRunningRexd = async ({ rexd_config: file, paths }: DaemonConfig): Promise<Finding[]> => {
  const claim = await readPidFile(paths.rexdPid)
  if (claim === null && file === null) return []
  if (claim === null) return [warn(REXD_TOPIC, 'the running daemon does not serve it', 'restart it to read rexd_config')]
  if (processState(claim) !== 'gone') return [ok(REXD_TOPIC, await described(claim.pid))]
  const remedy = file === null ? 'see its log' : `see its log; rexd --check --config ${file}`
  return [fail(REXD_TOPIC, 'it has ended and is being restarted', remedy)]
}

export const checkRunning = async (config: DaemonConfig, holder: ProcessIdentity | null, env: Environment): Promise<Finding[]> => {
  const pid = holder !== null && processState(holder) === 'alive' ? holder.pid : null
  try {
    const { agent, peers, mesh, contacts, exec } = await ask(config, env)
    const restart = await restartCommand(instanceAt(config), config.paths)
    return [
      whoRuns(pid === null ? ' in another container or on another host' : ` with pid ${pid}`, agent),
      ...(pid === null ? [] : [await checkProcesses(config.paths, pid), ...(await checkRunningRexd(config))]),
      checkPeers(peers),
      ...checkMesh(mesh),
      ...(await checkLoadedAcl(config, exec.acl_summary, restart)),
      ...(await checkUnreadAcl(config, exec.acl_summary.loaded_from)),
      ...checkJournal(exec.journal),
      ...(await checkLoadedConfig(config, restart)),
      ...(await checkLoadedGroups(config, contacts.groups ?? [], restart)),
      checkRequestLog(exec.outgoing_journal),
    ]
  } catch (error) {
    const text = `${holderText(holder)} holds the data directory but does not answer: ${errorText(error)}`
    return [fail('daemon', text, pid === null ? 'see its log on that machine' : `see its log; as a last resort: kill -9 ${pid}`)]
  }
}
