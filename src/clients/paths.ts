import { existsSync } from 'node:fs'
import { isAbsolute, join, sep } from 'node:path'
import { AppError } from '../base/errors.ts'
import { absolutePath, homeDirectory } from '../base/home.ts'
import type { Environment } from '../base/runtime.ts'
import { MAX_SOCKET_PATH } from '../base/unix-sockets.ts'

/** Which daemon of this user is meant; absent parts take their defaults. */
export interface InstanceChoice {
  readonly name: string | null
  readonly dataDir: string | null
}

/** An instance's name is part of a directory's name and of a socket's path, which the kernel keeps short. */
const INSTANCE_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$/

const checkInstanceName = (name: string, from: string): void => {
  if (INSTANCE_NAME.test(name)) return
  throw new AppError(
    'bad_config',
    `${from}: an instance's name has 1 to 32 letters, digits, "." "_" or "-", and begins with a letter or digit`,
  )
}

/** What was said of the instance, or else what the environment says. Throws `bad_config` for a name that can be no daemon's. */
export const instanceChoice = (said: InstanceChoice, env: Environment): InstanceChoice => {
  const name = said.name ?? env['X0X_NAME'] ?? null
  if (name !== null) checkInstanceName(name, said.name === null ? 'X0X_NAME' : '--name')
  return { name, dataDir: said.dataDir ?? env['X0X_DATA_DIR'] ?? null }
}

/** What names the same daemon on another command line. */
export const instanceFlags = ({ name, dataDir }: InstanceChoice): string[] => [
  ...(name === null ? [] : ['--name', name]),
  ...(dataDir === null ? [] : ['--data-dir', dataDir]),
]

/** `~/.x0x`, `~/.x0x-NAME`, or what was asked for. Throws `bad_config` for no path at all, which would be wherever we happen to be. */
export const dataDirOf = ({ name, dataDir }: InstanceChoice): string => {
  if (dataDir === '')
    throw new AppError('bad_config', 'the data directory (--data-dir, X0X_DATA_DIR) is empty; leave it out for the default')
  if (dataDir !== null) return absolutePath('the data directory (--data-dir, X0X_DATA_DIR)', dataDir)
  return join(homeDirectory(), name === null ? '.x0x' : `.x0x-${name}`)
}

/** The choice that leads to this data directory, as short as it can be said. */
export const instanceAt = ({ name, paths: { dir } }: { readonly name: string | null; readonly paths: DataPaths }): InstanceChoice => ({
  name,
  dataDir: dir === dataDirOf({ name, dataDir: null }) ? null : dir,
})

/** Data directory of the daemon that serves the whole machine, where a package or the units of deploy/ installed it. */
export const MACHINE_DATA_DIR = '/var/lib/x0x'
/** Its configuration. */
export const MACHINE_CONFIG = '/etc/x0x/config.toml'

/** The user chose no daemon and has none, and this machine has one of its own. */
export const isMachineMeant = ({ name, dataDir }: InstanceChoice, machineDir = MACHINE_DATA_DIR): boolean =>
  name === null && dataDir === null && !existsSync(dataDirOf({ name, dataDir })) && existsSync(machineDir)

/** Words that start this daemon. Without a configuration it would read the machine's ACL, so `--init` makes one. */
export const startWords = (instance: InstanceChoice): string[] => [
  'x0xd',
  ...instanceFlags(instance),
  ...(existsSync(pathsIn(dataDirOf(instance)).config) ? [] : ['--init']),
]

/** Where this user's configuration of programs is (XDG Base Directory Specification); a path that is not absolute counts as none. */
export const configHome = (env: Environment): string => {
  const named = env['XDG_CONFIG_HOME'] ?? ''
  return isAbsolute(named) ? named : join(homeDirectory(), '.config')
}

/** The files of one data directory. People and scripts depend on these names. */
export const pathsIn = (dir: string) => {
  const inside = join(dir, sep)
  return {
    dir,
    agentKey: `${inside}agent.key`,
    machineKey: `${inside}machine.key`,
    /** Where that key was first used: a hash of /etc/machine-id. */
    machineIdHash: `${inside}machine-id.hash`,
    operatorKey: `${inside}operator.key`,
    contacts: `${inside}contacts.json`,
    /** What the operator calls several contacts at once; written by the operator alone. */
    groups: `${inside}groups.toml`,
    revocations: `${inside}revocations.json`,
    /** What this agent's keys have said one of the other. */
    successions: `${inside}successions.json`,
    /** Detached runs that this daemon asked for. */
    detachedRuns: `${inside}detached-runs.json`,
    apiToken: `${inside}api-token`,
    /** Where `metrics_token` is true. */
    metricsToken: `${inside}metrics-token`,
    apiSocket: `${inside}api.sock`,
    apiPort: `${inside}api.port`,
    config: `${inside}config.toml`,
    execAcl: `${inside}exec-acl.toml`,
    /** The ACL that the running daemon has, as it was read. */
    loadedAcl: `${inside}exec-acl.loaded.toml`,
    /** Locked while a daemon has the directory; empty, and there for ever. */
    lock: `${inside}daemon.lock`,
    /** Which process has it. */
    pid: `${inside}x0xd.pid`,
    /** Which process the network's half is. */
    networkPid: `${inside}network.pid`,
    /** Which process REXD is. */
    rexdPid: `${inside}rexd.pid`,
    /** Marks of the runs that are going on, read after a crash. */
    runs: `${inside}runs`,
    /** What this user's humans have allowed, and the token of the desk's socket. */
    approvals: `${inside}exec-approvals.json`,
    /** The desk's socket: the prompt protocol. */
    approvalsSocket: `${inside}exec-approvals.sock`,
    /** Locked while a process hosts the desk; empty, and there for ever. */
    deskLock: `${inside}desk.lock`,
    /** Which process hosts it. */
    deskPid: `${inside}desk.pid`,
    /** Journal of what was asked of humans and decided. */
    approvalsJournal: `${inside}approvals.jsonl`,
    /** Journal of the Requests that this agent signs. */
    outgoing: `${inside}requests.jsonl`,
  } as const
}

export type DataPaths = ReturnType<typeof pathsIn>

/** Says what is wrong with a data directory whose socket the kernel could not bind, or null. */
export const socketPathProblem = (paths: DataPaths): string | null =>
  Buffer.byteLength(paths.apiSocket) > MAX_SOCKET_PATH
    ? `${paths.apiSocket}: the path of a socket has at most ${MAX_SOCKET_PATH} bytes; choose a shorter --data-dir`
    : null

/** The machine's own ACL; an instance with a name has one in its data directory, so that no file arms two daemons by accident. */
export const defaultAclPath = (name: string | null, paths: DataPaths): string => {
  if (name !== null) return paths.execAcl
  return process.platform === 'darwin' ? '/usr/local/etc/x0x/exec-acl.toml' : '/etc/x0x/exec-acl.toml'
}

/** Where `rexd` finds its configuration unless it is told. */
export const DEFAULT_REXD_CONFIG = '/etc/rexd/config.toml'
