import { existsSync } from 'node:fs'
import { realpath } from 'node:fs/promises'
import { AppError, isAppError } from '../base/errors.ts'
import { absolutePath } from '../base/home.ts'
import type { Environment } from '../base/runtime.ts'
import type { LocalApi } from '../clients/daemon.ts'
import { type InstanceChoice, MACHINE_CONFIG, MACHINE_DATA_DIR, dataDirOf, isMachineMeant } from '../clients/paths.ts'
import { type ConfigReading, type DaemonConfig, readConfig } from '../config/config.ts'
import type { ExecDiagnostics, ExecState } from '../executor/exec-counters.ts'
import { type AclSignatureRule, aclSigningOf } from '../policy/mesh/accepted-acl.ts'
import { type Acl, closedAcl } from '../policy/mesh/acl.ts'
import { type AclInspection, inspectAcl } from '../policy/mesh/load-acl.ts'
import { restartCommand } from '../supervision/restart-command.ts'

/** How the file differs from the ACL that the daemon enforces, or null if it does not. */
export const differenceOf = (
  { loaded_from: path, loaded_at, sha256, disabled_reason }: ExecState['acl_summary'],
  now: Pick<AclInspection, 'missing' | 'sha256' | 'problems'>,
): string | null => {
  const since = loaded_at === null ? '' : ` at ${loaded_at}`
  if (disabled_reason === 'acl_missing') return now.missing ? null : `x0xd found no file ${path}${since}, and it exists now`
  if (now.missing) return `x0xd read ${path}${since}, and the file is gone; x0xd uses its copy until it stops`
  if (now.sha256 === null) return `x0xd read ${path}${since}, and it cannot be compared now: ${now.problems.join('; ')}`
  return now.sha256 === sha256 ? null : `x0xd read ${path}${since}, and it has changed since`
}

/** How to put a changed file in force. x0xd does not start with an invalid one. */
export const remedyOf = (
  { missing, path, problems, unenforceable }: Pick<AclInspection, 'missing' | 'path' | 'problems' | 'unenforceable'>,
  restart: string,
): string => {
  if (missing) return `restore ${path}, or restart without it: ${restart}`
  // The daemon may be another user, who can enforce them.
  const isValid = problems.every((problem) => unenforceable.includes(problem))
  return isValid ? restart : `correct ${path} until x0x acl check accepts it, then: ${restart}`
}

/** The configuration of the chosen daemon for its next start. The daemon of the whole machine has its file in /etc. */
const configHere = async (instance: InstanceChoice, env: Environment): Promise<ConfigReading> => {
  const isOfMachine = isMachineMeant(instance) || dataDirOf(instance) === MACHINE_DATA_DIR
  const config = isOfMachine && env['X0X_CONFIG'] === undefined && existsSync(MACHINE_CONFIG) ? MACHINE_CONFIG : null
  const dataDir = isOfMachine ? MACHINE_DATA_DIR : instance.dataDir
  return readConfig({ name: instance.name, dataDir, config, executorSocket: null, settings: {} }, env)
}

const realPath = async (path: string): Promise<string> => realpath(path).catch(() => path)

/** A daemon's ACL file compared with the ACL that it enforces. */
export interface AclBesideDaemon {
  readonly file: string
  readonly isRunning: boolean
  /** Why the file is not in force, or null if it is, or if no daemon runs. */
  readonly difference: string | null
  /** The ACL that the daemon enforces instead of the file, or null if this user cannot read it. */
  readonly loaded: Acl | null
  /** How to put the file in force. */
  readonly remedy: string
}

/** The daemon's copy of the loaded ACL, if its digest fits. */
const loadedAcl = async (path: string, { sha256, disabled_reason }: ExecState['acl_summary']): Promise<Acl | null> => {
  if (disabled_reason === 'acl_missing') return closedAcl(null)
  // The daemon has checked who may write its directory.
  const copy = await inspectAcl(path, null, { pipes: true })
  return copy.sha256 === sha256 && sha256 !== null ? (copy.acl ?? closedAcl(path)) : null
}

/** Throws `daemon_unreachable` if the chosen daemon does not belong to this data directory. */
export const aclInForce = async (api: LocalApi, instance: InstanceChoice, env: Environment): Promise<AclBesideDaemon> => {
  let summary: ExecState['acl_summary']
  try {
    summary = (await api.json<ExecDiagnostics>({ method: 'GET', path: '/diagnostics/exec' })).acl_summary
  } catch (error) {
    if (!isAppError(error, 'daemon_unreachable') || error.data['start'] === undefined) throw error
    const { config } = await configHere(instance, env)
    return { file: config.exec_acl, isRunning: false, difference: null, loaded: null, remedy: '' }
  }
  const file = summary.loaded_from
  const now = await inspectAcl(file, null, { dataDir: api.paths.dir })
  const difference = differenceOf(summary, now)
  const loaded = difference === null ? null : await loadedAcl(api.paths.loadedAcl, summary)
  return { file, isRunning: true, difference, loaded, remedy: remedyOf(now, await restartCommand(instance, api.paths)) }
}

/**
 * The signature rule of the chosen daemon for its next start, or null if it has none or reads another file. `file` is null for the ACL of
 * this daemon. Throws `bad_config` if its configuration is not valid, because `acl_signers` is then unknown.
 */
export const signingHere = async (
  api: LocalApi,
  file: string | null,
  { instance, env }: { readonly instance: InstanceChoice; readonly env: Environment },
): Promise<AclSignatureRule | null> => {
  if (!api.isOwn) return null
  const { config, problems } = await configHere(instance, env)
  if (problems.length === 0 && config.acl_signers.length === 0) return null
  if (file !== null && !(await isOwnAcl(api, file, config))) return null
  if (problems.length > 0) throw new AppError('bad_config', problems.join('\n'), { data: { problems } })
  return aclSigningOf(config)
}

/** Whether the daemon reads this file: the one of its configuration, or the one that an option of the running daemon names. */
const isOwnAcl = async (api: LocalApi, file: string, { exec_acl }: Pick<DaemonConfig, 'exec_acl'>): Promise<boolean> => {
  const running = await api.json<ExecDiagnostics>({ method: 'GET', path: '/diagnostics/exec' }).catch(() => null)
  const own = await Promise.all([exec_acl, running?.acl_summary.loaded_from ?? exec_acl].map(realPath))
  return own.includes(await realPath(absolutePath('the ACL', file)))
}

/** Lines that precede the analysis of a file that is not in force. */
export const notInForceLines = ({ difference, remedy }: Pick<AclBesideDaemon, 'difference' | 'remedy'>): string[] =>
  difference === null ? [] : [`not in force: ${difference}`, `Try: ${remedy}`]

/** The text for a file that no daemon has read. */
export const notRunningText = (file: string): string => `x0xd is not running: this is about the file that it would read, ${file}`
