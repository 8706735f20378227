import { existsSync } from 'node:fs'
import { isAbsolute, join, sep } from 'node:path'
import { AppError } from '../base/errors.ts'
import { absolutePath, homeDirectory } from '../base/home.ts'
import type { Environment } from '../base/runtime.ts'
import { MAX_SOCKET_PATH } from '../base/unix-sockets.ts'

/** The choice of one daemon of this user. Absent parts have defaults. */
export interface InstanceChoice {
  readonly name: string | null
  readonly dataDir: string | null
}

/** The name becomes part of a directory name and of a socket path, which the kernel limits. */
const INSTANCE_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$/

const checkInstanceName = (name: string, from: string): void => {
  if (INSTANCE_NAME.test(name)) return
  throw new AppError(
    'bad_config',
    `${from}: an instance's name has 1 to 32 letters, digits, "." "_" or "-", and begins with a letter or digit`,
  )
}

/** The given choice, completed from the environment. Throws `bad_config` for an invalid name. */
export const instanceChoice = (said: InstanceChoice, env: Environment): InstanceChoice => {
  const name = said.name ?? env['X0X_NAME'] ?? null
  if (name !== null) checkInstanceName(name, said.name === null ? 'X0X_NAME' : '--name')
  return { name, dataDir: said.dataDir ?? env['X0X_DATA_DIR'] ?? null }
}

/** Flags that select the same daemon on another command line. */
export const instanceFlags = ({ name, dataDir }: InstanceChoice): string[] => [
  ...(name === null ? [] : ['--name', name]),
  ...(dataDir === null ? [] : ['--data-dir', dataDir]),
]

/** `~/.x0x`, `~/.x0x-NAME`, or the given directory. Throws `bad_config` for an empty path, which would mean the working directory. */
export const dataDirOf = ({ name, dataDir }: InstanceChoice): string => {
  if (dataDir === '')
    throw new AppError('bad_config', 'the data directory (--data-dir, X0X_DATA_DIR) is empty; leave it out for the default')
  if (dataDir !== null) return absolutePath('the data directory (--data-dir, X0X_DATA_DIR)', dataDir)
  return join(homeDirectory(), name === null ? '.x0x' : `.x0x-${name}`)
}

/** The shortest choice that leads to this data directory. */
export const instanceAt = ({ name, paths: { dir } }: { readonly name: string | null; readonly paths: DataPaths }): InstanceChoice => ({
  name,
  dataDir: dir === dataDirOf({ name, dataDir: null }) ? null : dir,
})

/** Data directory of the daemon for the whole machine, as installed by a package or the units of deploy/. */
export const MACHINE_DATA_DIR = '/var/lib/x0x'
/** Configuration file of that daemon. */
export const MACHINE_CONFIG = '/etc/x0x/config.toml'

/** Whether the machine has a daemon, and the user has not created or named one. */
export const isMachineMeant = ({ name, dataDir }: InstanceChoice, machineDir = MACHINE_DATA_DIR): boolean =>
  name === null && dataDir === null && !existsSync(dataDirOf({ name, dataDir })) && existsSync(machineDir)

/** The command that starts this daemon, with `--init` if it lacks a configuration. It would otherwise read the machine's ACL. */
export const startWords = (instance: InstanceChoice): string[] => [
  'x0xd',
  ...instanceFlags(instance),
  ...(existsSync(pathsIn(dataDirOf(instance)).config) ? [] : ['--init']),
]

/** The directory of this user's configuration files (XDG Base Directory Specification). A relative path is ignored. */
export const configHome = (env: Environment): string => {
  const named = env['XDG_CONFIG_HOME'] ?? ''
  return isAbsolute(named) ? named : join(homeDirectory(), '.config')
}

/** The files of a data directory. Users and scripts depend on these names. */
export const pathsIn = (dir: string) => {
  const inside = join(dir, sep)
  return {
    dir,
    agentKey: `${inside}agent.key`,
    machineKey: `${inside}machine.key`,
    /** A hash of /etc/machine-id, recorded when the key was first used. */
    machineIdHash: `${inside}machine-id.hash`,
    operatorKey: `${inside}operator.key`,
    contacts: `${inside}contacts.json`,
    /** Named groups of contacts. Only the operator writes them. */
    groups: `${inside}groups.toml`,
    revocations: `${inside}revocations.json`,
    /** Statements of this agent's keys about each other. */
    successions: `${inside}successions.json`,
    /** Detached runs that this daemon requested. */
    detachedRuns: `${inside}detached-runs.json`,
    /** Keys with which hosts enrol at this operator. */
    enrolKeys: `${inside}enrol-keys.json`,
    /** Enrolment of this machine by an operator. */
    enrolment: `${inside}enrolment.json`,
    apiToken: `${inside}api-token`,
    /** Exists if `metrics_token` is true. */
    metricsToken: `${inside}metrics-token`,
    apiSocket: `${inside}api.sock`,
    apiPort: `${inside}api.port`,
    config: `${inside}config.toml`,
    execAcl: `${inside}exec-acl.toml`,
    /** The version of the last signed ACL that took effect. */
    aclVersion: `${inside}acl-version.json`,
    /** Names the audit log of the last daemon. */
    auditLogPath: `${inside}audit-log-path`,
    /** A copy of the ACL that the running daemon has loaded. */
    loadedAcl: `${inside}exec-acl.loaded.toml`,
    /** Locked while a daemon uses the directory. The empty file is never removed. */
    lock: `${inside}daemon.lock`,
    /** Locked by a process that replaces the daemon, so that no other one takes its place. The empty file is never removed. */
    successorLock: `${inside}successor.lock`,
    /** That process. */
    successorPid: `${inside}successor.pid`,
    /** The socket on which the daemon hears that it is replaced. */
    handoverSocket: `${inside}handover.sock`,
    /** The process of the daemon. */
    pid: `${inside}x0xd.pid`,
    networkPid: `${inside}network.pid`,
    rexdPid: `${inside}rexd.pid`,
    /** Marks of live runs, read after a crash. */
    runs: `${inside}runs`,
    /** Permissions that the user's approvers gave, and the token of the approval service's socket. */
    approvals: `${inside}exec-approvals.json`,
    /** The socket of the approval service, for the prompt protocol. */
    approvalsSocket: `${inside}exec-approvals.sock`,
    /** Locked while a process hosts the approval service. The empty file is never removed. */
    deskLock: `${inside}desk.lock`,
    /** The process that hosts it. */
    deskPid: `${inside}desk.pid`,
    approvalsJournal: `${inside}approvals.jsonl`,
    /** The request log, which records requests of this agent to others. */
    outgoing: `${inside}requests.jsonl`,
  } as const
}

export type DataPaths = ReturnType<typeof pathsIn>

/** Why the kernel could not bind the socket in a data directory, or null. */
export const socketPathProblem = (paths: DataPaths): string | null =>
  Buffer.byteLength(paths.apiSocket) > MAX_SOCKET_PATH
    ? `${paths.apiSocket}: the path of a socket has at most ${MAX_SOCKET_PATH} bytes; choose a shorter --data-dir`
    : null

/** The machine's ACL. A named instance has one in its data directory, so that no file allows commands on two daemons by accident. */
export const defaultAclPath = (name: string | null, paths: DataPaths): string => {
  if (name !== null) return paths.execAcl
  return process.platform === 'darwin' ? '/usr/local/etc/x0x/exec-acl.toml' : '/etc/x0x/exec-acl.toml'
}

/** Default configuration file of `rexd`. */
export const DEFAULT_REXD_CONFIG = '/etc/rexd/config.toml'
