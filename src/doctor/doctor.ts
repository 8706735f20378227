import { stat } from 'node:fs/promises'
import { createServer } from 'node:net'
import { type Clock, systemClock } from '../base/clock.ts'
import { errorText, isAppError } from '../base/errors.ts'
import { silentLogger } from '../base/log.ts'
import type { Environment } from '../base/runtime.ts'
import type { DataPaths } from '../clients/paths.ts'
import { type ConfigReading, type DaemonConfig, dataDirMode } from '../config/config.ts'
import { DetachedRequestStore } from '../executor/requested-detached.ts'
import { agentSignerOf } from '../identity/agent-key.ts'
import { loadSeed } from '../identity/key-file.ts'
import { machineIdOfKeyFile, peerIdOf } from '../identity/machine-key.ts'
import { primitives } from '../identity/primitives.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { inspectLock } from '../supervision/lock.ts'
import { Contacts } from '../trust/contacts.ts'
import { Revocations } from '../trust/revocations.ts'
import {
  checkConfig,
  checkDataDir,
  checkGroups,
  checkMachineId,
  checkNetworkUser,
  checkProcessOne,
  checkRuns,
  checkSharing,
  checkSyslog,
  runningContainment,
} from './check.ts'
import { deskFindings } from './desk-check.ts'
import type { Examiner } from './examiner.ts'
import { checkExecFiles, checkOutgoing } from './exec-files.ts'
import { type Finding, fail, ok, warn } from './findings.ts'
import { checkSuccessors } from './mesh-check.ts'
import { checkProgramStart, checkRexdSocket, checkServedRexd, rexdListen } from './rexd-check.ts'
import { askWhoRuns, checkRunning } from './running.ts'

const checkRuntime = (): Finding => {
  const { name } = primitives()
  const text = `Node ${process.versions.node}, post-quantum primitives: ${name}`
  if (name === 'native') return ok('runtime', text)
  return warn('runtime', `${text} (about ten times slower)`, 'use Node 24.7 or newer with OpenSSL 3.5, and unset X0X_CRYPTO')
}

const AGENT_HEADER = 'x0x-agent-key-v1'

const checkKey = async (topic: string, path: string, header: string | null, groupMayRead = false): Promise<Finding> => {
  try {
    await loadSeed({ path, header, groupMayRead })
    return ok(topic, path)
  } catch (error) {
    if (isAppError(error, 'not_found')) return ok(topic, `${path} will be made at the first start`)
    const remedy = isAppError(error) && typeof error.data['remedy'] === 'string' ? error.data['remedy'] : null
    return fail(topic, errorText(error), remedy)
  }
}

const checkKeys = async ({ metrics_token, paths, share_with_group }: DaemonConfig): Promise<Finding[]> =>
  Promise.all([
    checkKey('agent key', paths.agentKey, AGENT_HEADER),
    checkKey('machine key', paths.machineKey, 'x0x-machine-key-v1'),
    checkKey('operator key', paths.operatorKey, null, share_with_group),
    checkKey('API token', paths.apiToken, null, share_with_group),
    ...(metrics_token ? [checkKey('metrics token', paths.metricsToken, null, share_with_group)] : []),
  ])

const checkContacts = async (path: string): Promise<Finding> => {
  try {
    const contacts = new Contacts({ path })
    await contacts.load()
    const list = contacts.list()
    const trusted = list.filter(({ trust }) => trust === 'trusted')
    const unpinned = trusted.filter(({ machines }) => machines.length === 0)
    if (unpinned.length === 0) return ok('contacts', `${list.length}, of which ${trusted.length} trusted`)
    const names = unpinned.map(({ name }) => name).join(', ')
    return warn(
      'contacts',
      `trusted from any machine: ${names}`,
      'x0x contacts pin NAME MACHINE, so that a stolen agent key does not work on other machines',
    )
  } catch (error) {
    return fail('contacts', errorText(error), 'fix the file or move it away')
  }
}

/** Checks the detached runs. The daemon starts without this file. */
const checkDetachedRuns = async (path: string, clock: Clock): Promise<Finding> => {
  const asked = new DetachedRequestStore({ clock, log: silentLogger }, { path })
  const problem = await asked.load()
  const lost = 'detached runs cannot be started or listed'
  return problem === null
    ? ok('detached runs', `${asked.size} remembered`)
    : warn('detached runs', `${problem.message}; ${lost}`, 'fix the file or move it away')
}

const checkRevocations = async ({ paths }: DaemonConfig): Promise<Finding> => {
  const revocations = new Revocations({ path: paths.revocations })
  try {
    await revocations.load()
  } catch (error) {
    return fail('revocations', errorText(error), 'restore the file from a backup')
  }
  const kept = `${revocations.list().length} kept`
  let own: Awaited<ReturnType<typeof ownIds>>
  try {
    own = await ownIds(paths)
  } catch (error) {
    if (isAppError(error, 'not_found')) return ok('revocations', `${kept}; this agent has no keys yet`)
    return warn('revocations', `${kept}; without its keys, x0xd cannot tell whether this agent is revoked`, 'fix the keys')
  }
  if (!revocations.isRevoked(own.agentId, own.machineId)) return ok('revocations', `${kept}; this agent is not revoked on this machine`)
  return fail(
    'revocations',
    `this agent has been revoked ${revocations.of(own.agentId).revoked ? '' : 'on this machine '}for ever: no other agent accepts it`,
    'start x0xd with a new data directory, and give its card to your peers',
  )
}

/** Throws for missing or bad keys, which other findings report. */
const ownIds = async (paths: DataPaths): Promise<{ agentId: AgentId; machineId: MachineId }> => ({
  agentId: agentSignerOf(await loadSeed({ path: paths.agentKey, header: AGENT_HEADER })).agentId,
  machineId: await machineIdOfKeyFile(paths.dir),
})

const bindError = async (host: string, port: number): Promise<string | null> =>
  new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(null)))
  })

/** The setting of each port that the daemon listens on. */
const CHOSEN_BY = { 'API port': '--api-port', 'mesh port': '--listen', 'REXD port': 'server.http_listen of rexd_config' } as const

type Endpoint = readonly [keyof typeof CHOSEN_BY, host: string, port: number]

/** Whether the daemon's ports are free. Only checked while it does not run. */
const checkPorts = async (config: DaemonConfig): Promise<Finding[]> => {
  const rexd = await rexdListen(config)
  const wanted: Endpoint[] = [
    ['API port', '127.0.0.1', config.api_port],
    ...config.listen.flatMap(meshEndpoint),
    ...(rexd?.kind === 'tcp' ? [['REXD port', rexd.host, rexd.port] as const] : []),
  ]
  const sockets = rexd?.kind === 'unix' ? [await checkRexdSocket(rexd.path)] : []
  const ports = await Promise.all(
    wanted.map(async ([topic, host, port]) => {
      const error = port === 0 ? null : await bindError(host, port)
      const text = port === 0 ? `${host}, any free port` : `${host}:${port}`
      if (error === null) return ok(topic, `${text} is free`)
      return fail(topic, `${text} cannot be taken: ${error}`, `choose another with ${CHOSEN_BY[topic]}, or stop the program that uses it`)
    }),
  )
  return [...ports, ...sockets]
}

const meshEndpoint = (address: string): Endpoint[] => {
  const [, kind = '', host = '', , port = ''] = address.split('/')
  return kind.startsWith('ip') ? [['mesh port', host, Number(port)]] : []
}

/** Clock difference above which other machines refuse presences and proofs. */
const CLOCK_SLACK_MS = 300_000

const checkClock = async (config: DaemonConfig): Promise<Finding> => {
  const now = new Date()
  const files = await Promise.all(
    [config.paths.agentKey, config.paths.contacts, process.execPath].map(async (path) => stat(path).catch(() => null)),
  )
  const newest = Math.max(...files.map((info) => info?.mtimeMs ?? 0))
  if (now.getTime() + CLOCK_SLACK_MS >= newest) return ok('clock', `${now.toISOString()}; peers may differ by 5 minutes`)
  return fail(
    'clock',
    `${now.toISOString()} is before the newest file of x0x (${new Date(newest).toISOString()})`,
    'set the clock, and keep it right with NTP',
  )
}

/** Checks which peers may connect. Permissions are another check. */
const checkUnlisted = ({ strangers, bootstrap }: DaemonConfig): Finding =>
  strangers
    ? ok('unlisted peers', 'they may connect, within limits; strangers = false excludes them')
    : ok('unlisted peers', `only machines in contacts, the ACL or ${bootstrap.length} bootstrap addresses may connect`)

/** Warns about an address of this machine in a list. A start is possible, because the list may be the same for all hosts of a mesh. */
const checkOwnAddress = async ({ bootstrap, relays, paths }: DaemonConfig): Promise<Finding[]> => {
  const machineId = await machineIdOfKeyFile(paths.dir).catch(() => null)
  const own = machineId === null ? undefined : [...bootstrap, ...relays].find((address) => address.endsWith(`/p2p/${peerIdOf(machineId)}`))
  return own === undefined
    ? []
    : [warn('bootstrap', `${own} is an address of this machine, so it has no effect`, 'remove it on this machine')]
}

/** Obstacles that a start would find. */
const checkStart = async (config: DaemonConfig, daemon: Finding): Promise<Finding[]> => [
  ...checkProcessOne(process.pid),
  ...(await checkRuns(config)),
  ...(await checkExecFiles(config.exec_acl)),
  await checkOutgoing(config.paths.outgoing),
  daemon,
  ...(await checkPorts(config)),
]

const checkDaemon = async (config: DaemonConfig, env: Environment): Promise<Finding[]> => {
  const look = await inspectLock(config.paths)
  switch (look.kind) {
    case 'held':
      return [
        await runningContainment(config.paths.dir),
        ...checkProcessOne(look.holder?.pid ?? null),
        ...(await checkRunning(config, look.holder, env)),
        ...(await deskFindings(config.paths)),
      ]
    case 'free':
      return checkStart(config, ok('daemon', 'does not run'))
    case 'unknown':
      return checkStart(config, warn('daemon', `${config.paths.lock} does not say whether it runs`, 'make it readable for its user'))
  }
}

/** Findings that a user other than the daemon's can make. */
const checkFromOutside = async (config: DaemonConfig, user: string, env: Environment): Promise<Finding[]> => {
  const { dir } = config.paths
  const remedy = `run this as ${user}: sudo -u ${user} x0xd --doctor --data-dir ${dir}`
  const answer = await askWhoRuns(config, env).catch(() => null)
  return [
    warn('user', `${dir} belongs to ${user === 'USER' ? 'another user' : user}, and this user cannot read it`, remedy),
    answer ?? warn('daemon', 'does not answer this user', remedy),
  ]
}

/**
 * `x0xd --doctor` checks each part of the installation and gives remedies. It changes only the unpacked image of a sandbox that it tries.
 */
export const doctor = async (reading: ConfigReading, examiner: Examiner, env: Environment): Promise<Finding[]> => {
  const { config } = reading
  if (examiner.kind === 'stranger') return [checkRuntime(), ...(await checkFromOutside(config, examiner.user, env))]
  return [
    checkRuntime(),
    ...checkProgramStart(),
    ...checkConfig(reading),
    ...(examiner.kind === 'became' ? [ok('user', `checked as ${examiner.user}, the owner of ${config.paths.dir}`)] : []),
    await checkDataDir(config.paths.dir, dataDirMode(config)),
    ...(await checkSharing(config)),
    ...(await checkSyslog(config)),
    ...(await checkKeys(config)),
    ...(await checkMachineId(config)),
    ...(await checkNetworkUser(config)),
    await checkContacts(config.paths.contacts),
    ...(await checkGroups(config)),
    await checkRevocations(config),
    await checkDetachedRuns(config.paths.detachedRuns, systemClock),
    ...(await checkSuccessors(config)),
    checkUnlisted(config),
    ...(await checkOwnAddress(config)),
    await checkClock(config),
    ...(await checkServedRexd(config, { strict: true })),
    ...(await checkDaemon(config, env)),
  ]
}
