import { stat } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { AppError, attempt, errorText } from '../base/errors.ts'
import { type PasswdEntry, readPasswd } from '../base/file-permissions.ts'
import { shellWord } from '../base/format.ts'
import { sha256 } from '../identity/hash.ts'
import { startOwnProcess } from './own-process.ts'

/** User that the network process runs as, if it differs from the executor's user. */
export interface NetworkUser {
  /** Null for a user ID without a user. */
  readonly name: string | null
  readonly uid: number
  readonly gid: number
}

const DEFAULT_USER = 'x0x'

/** User IDs that distributions and systemd do not assign (systemd's UIDS-GIDS table), available also in a small user namespace. */
const SPARE_FIRST = 60_578
const SPARE_COUNT = 606

export const userCommand = (name: string): string => `useradd --system --no-create-home --shell /usr/sbin/nologin ${name}`

/** Empty without a passwd file. */
const users = (): PasswdEntry[] => attempt(readPasswd) ?? []

/** User name of an ID, or the ID itself. */
export const userNameOf = (uid: number): string => users().find((user) => user.uid === uid)?.name ?? String(uid)

/** A different ID for each data directory, the same at each start. */
const spareUser = (dataDir: string): NetworkUser => {
  const id = SPARE_FIRST + (Buffer.from(sha256(Buffer.from(dataDir))).readUInt32BE(0) % SPARE_COUNT)
  return { name: null, uid: id, gid: id }
}

/** Name of this process's user, or its ID. */
export const ownName = (): string => attempt(() => userInfo().username) ?? String(process.geteuid?.())

/**
 * Null for this process's user, if it is not root or `network_user = "root"`. By default the user x0x or, if it does not exist, an
 * unassigned ID. Throws `bad_config`.
 */
export const networkUserOf = (wanted: string | null, dataDir: string): NetworkUser | null => {
  if (process.geteuid?.() !== 0) {
    if (wanted === null || wanted === ownName()) return null
    throw new AppError(
      'bad_config',
      `network_user: only root can run the network process as ${wanted}; leave it out, or start x0xd as root`,
    )
  }
  if (wanted === 'root') return null
  const name = wanted ?? DEFAULT_USER
  const user = users().find((other) => other.name === name)
  if (user === undefined && wanted === null) return spareUser(dataDir)
  if (user === undefined) throw new AppError('bad_config', `network_user: no user ${name}; create it with: ${userCommand(name)}`)
  const { uid, gid } = user
  if (uid === null || gid === null) throw new AppError('bad_config', `network_user: /etc/passwd gives ${name} no valid uid and gid`)
  if (uid === 0) throw new AppError('bad_config', `network_user: ${name} is another name of root`)
  return { name, uid, gid }
}

const allows = (info: { mode: number; uid: number; gid: number }, { uid, gid }: NetworkUser, bit: 1 | 4): boolean =>
  (info.mode & (info.uid === uid ? bit << 6 : info.gid === gid ? bit << 3 : bit)) !== 0

/** The error if the process cannot start as that user. In a container without capabilities, root may not change users. */
export const cannotStart = (user: NetworkUser | null, error: unknown): AppError => {
  const as = user === null ? '' : ` as ${user.name ?? `uid ${user.uid}`}`
  const remedy =
    user === null ? '' : '; start x0xd as a separate user, or set network_user = "root", which removes the protection between the processes'
  return new AppError('bad_config', `cannot start the network process${as}: ${errorText(error)}${remedy}`, { cause: error })
}

const GROUP_READS = 0o040
/** Exit status of a test process that was denied access. */
const MAY_NOT = 3

/** True if that user can open the file. Access control lists may permit it, or parent directories prevent it. */
const canOpen = async (path: string, user: NetworkUser): Promise<boolean> => {
  const text = `try { require('node:fs').openSync(process.argv[1], 'r') } catch { process.exit(${MAY_NOT}) }`
  try {
    const { ended } = startOwnProcess({ argv: ['--eval', text, '--', path], env: {}, stdio: 'ignore', user })
    return (await ended) !== `exit ${MAY_NOT}`
  } catch (error) {
    throw cannotStart(user, error)
  }
}

/** Throws `bad_config` if that user cannot execute this runtime, for example because x0x was installed with umask 077. */
export const checkExecutable = async (user: NetworkUser): Promise<void> => {
  const { execPath } = process
  const info = await stat(execPath)
  if (allows(info, user, 1) || (await canExecute(user))) return
  const who = user.name ?? `uid ${user.uid}`
  const remedy = `chmod go+rx ${shellWord(execPath)}`
  const mode = (info.mode & 0o777).toString(8)
  throw new AppError('bad_config', `${who}, the user of the network process, may not execute ${execPath} (mode ${mode}): ${remedy}`, {
    data: { file: execPath, remedy },
  })
}

const canExecute = async (user: NetworkUser): Promise<boolean> => {
  try {
    return (await startOwnProcess({ argv: ['--eval', '0'], env: {}, stdio: 'ignore', user }).ended) === 'exit 0'
  } catch (error) {
    throw cannotStart(user, error)
  }
}

/**
 * Throws `loose_permissions` if that user could read a secret of the executor. An access control list shows as group permission, in which
 * case a process tries as that user. Throws `bad_config` if no process can run as the user, and as `checkExecutable`.
 */
export const checkUnreadable = async (secrets: readonly string[], user: NetworkUser): Promise<void> => {
  await checkExecutable(user)
  for (const path of secrets) {
    const info = await stat(path)
    if (!allows(info, user, 4) && ((info.mode & GROUP_READS) === 0 || !(await canOpen(path, user)))) continue
    const who = user.name ?? `uid ${user.uid}`
    const remedy = 'let network_user be a user outside the group of the data directory, and named in no access control list of the file'
    throw new AppError('loose_permissions', `${who}, the user of the network process, can read ${path}; ${remedy}`, {
      data: { file: path, remedy },
    })
  }
}
