import { readlinkSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { attempt, errorText, isAppError } from '../base/errors.ts'
import { counted, shellWord, shellWords } from '../base/format.ts'
import { silentLogger } from '../base/log.ts'
import { statOf } from '../base/process-stat.ts'
import { instanceAt } from '../clients/paths.ts'
import { type ConfigReading, type DaemonConfig, dataDirMode } from '../config/config.ts'
import { judgeSharing } from '../config/group-sharing.ts'
import { foreignMachineIdHash } from '../identity/machine-id-hash.ts'
import { machineIdOfKeyFile } from '../identity/machine-key.ts'
import { type AclSigning, aclSigningOf, signatureText } from '../policy/mesh/accepted-acl.ts'
import type { EnforcementProbe } from '../policy/mesh/confinement.ts'
import { type AclInspection, inspectAcl } from '../policy/mesh/load-acl.ts'
import { missingTools } from '../process/cleanup-process.ts'
import { checkDatagrams } from '../process/datagram-sender.ts'
import { CONTAINMENT_FILE, type ContainmentRecord, ProcessTrees, readContainmentRecord } from '../process/process-trees.ts'
import { checkExecutable, networkUserOf, userNameOf } from '../supervision/network-user.ts'
import { restartCommand } from '../supervision/restart-command.ts'
import { inspectGroups } from '../trust/groups.ts'
import { checkExecFiles, checkOutgoing } from './exec-files.ts'
import { type Finding, fail, ok, warn } from './findings.ts'
import { checkSuccessors } from './mesh-check.ts'
import { checkProgramStart, checkServedRexd } from './rexd-check.ts'

const REMEDY = 'see "Containment" in docs/config.md'

const findingOf = ({ in_force, stronger }: Pick<ContainmentRecord, 'in_force' | 'stronger'>, who: string): Finding => {
  const missing = missingTools()
  if (missing.length > 0)
    return warn(
      'containment',
      `processes that leave their process group survive if the daemon is killed: ${missing.join(', ')} not found in /usr/bin or /bin`,
      'install coreutils and grep',
    )
  const reasons = stronger.map(({ containment, why }) => `; not ${containment}: ${why}`).join('')
  if (in_force !== 'group') return ok('containment', `${who} ${in_force}${reasons}`)
  return warn('containment', `${who} process groups only, so a descendant can survive its run${reasons}`, REMEDY)
}

/** Tries the containment that a start of this user would have, and checks entries that ask for more. */
export const tryContainment = async <T>(
  { containment }: Pick<DaemonConfig, 'containment'>,
  work: (finding: Finding, judge: EnforcementProbe | null) => Promise<T>,
): Promise<T> => {
  let trees: ProcessTrees
  try {
    trees = await ProcessTrees.open({ cleanup: null, log: silentLogger }, { choice: containment, dataDir: null })
  } catch (error) {
    return work(fail('containment', errorText(error), null), null)
  }
  try {
    return await work(findingOf({ in_force: trees.inForce, stronger: trees.stronger }, 'runs would be contained by'), trees.judge)
  } finally {
    await trees.stop()
  }
}

/** The containment that the running daemon has recorded. */
export const runningContainment = async (dataDir: string): Promise<Finding> => {
  const record = await readContainmentRecord(join(dataDir, CONTAINMENT_FILE))
  if (record === null) return warn('containment', 'the running daemon has not recorded it', 'restart it')
  return findingOf(record, 'the running daemon contains runs by')
}

export const aclCounts = (entries: number, commands: number, roots = 0): string =>
  `${counted(entries, 'allow entry', 'allow entries')}, ${counted(commands, 'command')}${roots === 0 ? '' : `, ${counted(roots, 'root')} of files`}`

/** Entries of the ACL that do not work as written. */
export const aclDoubts = ({ path, warnings }: Pick<AclInspection, 'path' | 'warnings'>): Finding[] =>
  warnings.map((text) => warn('ACL', text, `x0x acl check ${path}`))

/** Checks the ACL as this daemon would load it. Lists every problem, then the allowed commands. */
export const checkAcl = async (
  config: Pick<DaemonConfig, 'acl_signers' | 'exec_acl' | 'exec_acl_explicit' | 'paths'>,
  judge: EnforcementProbe | null,
): Promise<Finding[]> => {
  const { exec_acl: path, exec_acl_explicit: explicit, paths } = config
  let signing: AclSigning | null
  try {
    signing = await aclSigningOf(config)
  } catch (error) {
    return [fail('ACL', errorText(error), null)]
  }
  const inspection = await inspectAcl(path, judge, { dataDir: paths.dir, signing })
  const { acl, missing, problems, signature } = inspection
  if (missing && !explicit) return [ok('ACL', `${path} does not exist, so exec is disabled`)]
  const bad = problems.map((problem) => fail('ACL', problem, null))
  const doubtful = aclDoubts(inspection)
  if (bad.length > 0) return [...bad, ...doubtful]
  if (acl === null) return [warn('ACL', `${path} has no [exec] section, so exec is disabled`, 'see docs/acl.md'), ...doubtful]
  const counts = aclCounts(
    acl.allow.length,
    acl.allow.reduce((sum, entry) => sum + entry.commands.length, 0),
    acl.allow.reduce((sum, entry) => sum + entry.files.length, 0),
  )
  const signed = signature === null ? '' : `, ${signatureText(signature)}`
  return [ok('ACL', `${path}: exec ${acl.enabled ? 'enabled' : 'disabled by enabled = false'}, ${counts}${signed}`), ...doubtful]
}

/** Warns about an ACL in the data directory that is not read, because the daemon uses another path. */
export const checkUnreadAcl = async ({ paths, config_file }: DaemonConfig, read: string): Promise<Finding[]> => {
  if (read === paths.execAcl || (await stat(paths.execAcl).catch(() => null)) === null) return []
  const file = config_file ?? paths.config
  return [
    warn(
      'ACL',
      `${paths.execAcl} is not read: x0xd reads ${read}`,
      `write into ${file}: exec_acl = ${JSON.stringify(paths.execAcl)}; then restart x0xd`,
    ),
  ]
}

/** Problems of an existing data directory. A missing one is made at the first start. */
export const checkDataDir = async (dir: string, mode: number): Promise<Finding> => {
  const info = await stat(dir).catch(() => null)
  if (info === null) return ok('data', `${dir} will be made at the first start`)
  if (!info.isDirectory()) return fail('data', `${dir} is not a directory`, null)
  const uid = process.geteuid?.() ?? info.uid
  if (info.uid !== uid)
    return fail(
      'data',
      `${dir} belongs to ${userNameOf(info.uid)}, not to this user`,
      `run this as ${userNameOf(info.uid)}, or choose another directory`,
    )
  const loose = info.mode & 0o777 & ~mode
  return loose === 0
    ? ok('data', dir)
    : fail('data', `${dir} is open to other users (mode ${octal(info.mode)})`, `chmod ${octal(mode)} ${shellWord(dir)}`)
}

const octal = (mode: number): string => (mode & 0o777).toString(8)

/** Warns if the keys were first used on another machine, which means a clone, or a backup that was restored on new hardware. */
export const checkMachineId = async (config: DaemonConfig): Promise<Finding[]> => {
  const { paths } = config
  const machine = await machineIdOfKeyFile(paths.dir).catch(() => null)
  const stored = await foreignMachineIdHash(paths.dir, machine)
  if (stored === null) return []
  const restart = await restartCommand(instanceAt(config), paths)
  const remove = (...files: readonly string[]): string => `${shellWords(['rm', '-f', ...files])} && ${restart}`
  return [
    warn(
      'machine ID',
      `the keys in ${paths.dir} were first used on another machine (/etc/machine-id differs). Two machines with the same keys take each other's connections`,
      [
        `${remove(paths.agentKey, paths.machineKey, paths.operatorKey, paths.apiToken)}   (a clone: make new keys for this machine)`,
        `${remove(stored)}   (this machine replaces the other one: keep the keys)`,
      ].join('\n'),
    ),
  ]
}

/** Warns if the user of the network process may not execute the program that starts it. Empty if it may, or without such a user. */
export const checkNetworkUser = async ({ executor_socket, network_user, paths }: DaemonConfig): Promise<Finding[]> => {
  try {
    const user = executor_socket === null ? networkUserOf(network_user, paths.dir) : null
    if (user !== null) await checkExecutable(user)
    return []
  } catch (error) {
    return [fail('network user', errorText(error), isAppError(error) ? String(error.data['remedy'] ?? '') || null : null)]
  }
}

/** Whether the parent of x0xd is process 1. The launcher remains its parent if it starts another Node.js. */
const isStartedByProcessOne = (pid: number): boolean =>
  statOf(pid)[1] === '1' && basename(attempt(() => readlinkSync('/proc/1/exe')) ?? '') === basename(process.execPath)

/** Warns if x0xd is process 1 of its PID namespace, where the kernel gives it every orphan. `pid` is the daemon's, or null for this one. */
export const checkProcessOne = (pid: number | null): Finding[] =>
  pid !== null && (pid === 1 || isStartedByProcessOne(pid))
    ? [
        warn(
          'process 1',
          'x0xd is process 1 of its container. It does not reap processes that commands leave behind, so they stay as zombies',
          'start it by an init: docker run --init IMAGE, or tini -s -- x0xd',
        ),
      ]
    : []

export const checkConfig = ({ config, problems }: ConfigReading): Finding[] =>
  problems.length > 0
    ? problems.map((problem) => fail('configuration', problem, null))
    : [ok('configuration', config.config_file ?? 'no file; flags, environment and defaults')]

/** The containment of runs, and the ACL entries that need it. */
export const checkRuns = async (config: DaemonConfig): Promise<Finding[]> =>
  tryContainment(config, async (finding, judge) => [
    finding,
    ...(await checkAcl(config, judge)),
    ...(await checkUnreadAcl(config, config.exec_acl)),
  ])

/** The groups as a start would load them, or empty without groups. */
export const checkGroups = async ({ paths }: DaemonConfig): Promise<Finding[]> => {
  const { groups, problems } = await inspectGroups(paths.groups)
  if (problems.length > 0) return problems.map((problem) => fail('groups', problem, null))
  return groups.length === 0 ? [] : [ok('groups', `${counted(groups.length, 'group')} in ${paths.groups}`)]
}

/** The files that `share_with_group` would open or could not. */
export const checkSharing = async (config: DaemonConfig): Promise<Finding[]> => {
  const { closed, problems } = await judgeSharing(config)
  if (problems.length > 0) return problems.map((problem) => fail('group', problem, null))
  if (closed.length === 0) return []
  return [warn('group', `share_with_group = true, but the group may not read ${closed.join(', ')}`, 'restart x0xd, which opens them')]
}

/** Checks the syslog socket. Empty if the configuration has no socket. */
export const checkSyslog = async ({ syslog }: DaemonConfig): Promise<Finding[]> => {
  if (syslog === null) return []
  try {
    checkDatagrams()
  } catch (error) {
    return [fail('syslog', errorText(error), 'install perl, or leave syslog out')]
  }
  const info = await stat(syslog).catch(() => null)
  if (info?.isSocket() === true) return [ok('syslog', syslog)]
  return [warn('syslog', `${syslog} is not a socket, so the logs are not copied to it`, "start this host's syslog")]
}

/** `x0xd --check` reports all obstacles to a start, without starting. It leaves only the unpacked image of a sandbox that it tried. */
export const check = async ({ config, problems }: ConfigReading): Promise<Finding[]> => [
  ...checkConfig({ config, problems }),
  ...checkProgramStart(),
  await checkDataDir(config.paths.dir, dataDirMode(config)),
  ...(await checkMachineId(config)),
  ...(await checkNetworkUser(config)),
  ...(await checkSharing(config)).filter(({ standing }) => standing === 'fail'),
  ...(await checkGroups(config)),
  ...(await checkRuns(config)),
  ...(await checkSuccessors(config)),
  ...(await checkServedRexd(config, { strict: false })),
  ...(await checkSyslog(config)),
  // A start still succeeds, but runs are denied until this is repaired.
  ...[...(await checkExecFiles(config.exec_acl)), await checkOutgoing(config.paths.outgoing)].flatMap(({ standing, topic, text, remedy }) =>
    standing === 'fail' && remedy !== null ? [warn(topic, text, remedy)] : [],
  ),
]
