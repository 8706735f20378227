import { stat } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { AppError, attempt, errorText } from '../base/errors.ts'
import { type PasswdEntry, readPasswd } from '../base/file-permissions.ts'
import { shellWord } from '../base/format.ts'
import { sha256 } from '../identity/hash.ts'
import { startOwnProcess } from './own-process.ts'

/** Whom the network's half runs as, where that is not ourselves. */
export interface NetworkUser {
  /** Null for a number that no user has. */
  readonly name: string | null
  readonly uid: number
  readonly gid: number
}

const DEFAULT_USER = 'x0x'

/** Numbers that neither distributions nor systemd give to anybody (systemd's UIDS-GIDS table), also within a small user namespace. */
const SPARE_FIRST = 60_578
const SPARE_COUNT = 606

/** What makes a system user of that name. */
export const userCommand = (name: string): string => `useradd --system --no-create-home --shell /usr/sbin/nologin ${name}`

/** Nobody where there is no such file. */
const users = (): PasswdEntry[] => attempt(readPasswd) ?? []

/** The name of a number, or the number itself. */
export const userNameOf = (uid: number): string => users().find((user) => user.uid === uid)?.name ?? String(uid)

/** Another for each data directory, the same at each start. */
const spareUser = (dataDir: string): NetworkUser => {
  const id = SPARE_FIRST + (Buffer.from(sha256(Buffer.from(dataDir))).readUInt32BE(0) % SPARE_COUNT)
  return { name: null, uid: id, gid: id }
}

/** Of the user that we are; its number where it has none. */
export const ownName = (): string => attempt(() => userInfo().username) ?? String(process.geteuid?.())

/**
 * Null: it runs as we do, because we are no root, or because `network_user = "root"` says so. Without the
 * setting it is the user x0x, or, where there is none, a number that nobody has. Throws `bad_config`.
 */
export const networkUserOf = (wanted: string | null, dataDir: string): NetworkUser | null => {
  if (process.geteuid?.() !== 0) {
    if (wanted === null || wanted === ownName()) return null
    throw new AppError('bad_config', `network_user: only root can run the network's half as ${wanted}; leave it out, or start x0xd as root`)
  }
  if (wanted === 'root') return null
  const name = wanted ?? DEFAULT_USER
  const user = users().find((other) => other.name === name)
  if (user === undefined && wanted === null) return spareUser(dataDir)
  if (user === undefined) throw new AppError('bad_config', `network_user: there is no user ${name}; make it with: ${userCommand(name)}`)
  const { uid, gid } = user
  if (uid === null || gid === null) throw new AppError('bad_config', `network_user: /etc/passwd gives ${name} no valid uid and gid`)
  if (uid === 0) throw new AppError('bad_config', `network_user: ${name} is another name of root`)
  return { name, uid, gid }
}

const allows = (info: { mode: number; uid: number; gid: number }, { uid, gid }: NetworkUser, bit: 1 | 4): boolean =>
  (info.mode & (info.uid === uid ? bit << 6 : info.gid === gid ? bit << 3 : bit)) !== 0

/** Why nothing can be started as that user: a root without the right to become another, as in a container without capabilities. */
export const cannotStart = (user: NetworkUser | null, error: unknown): AppError => {
  const as = user === null ? '' : ` as ${user.name ?? `uid ${user.uid}`}`
  const remedy = user === null ? '' : '; start x0xd as a user of its own, or set network_user = "root" and lose the wall between the halves'
  return new AppError('bad_config', `the network's half cannot be started${as}: ${errorText(error)}${remedy}`, { cause: error })
}

const GROUP_READS = 0o040
/** How the one who tries says that he may not. */
const MAY_NOT = 3

/** Whether that user can open it, which an access control list may let him, or the directories above it keep him from. */
const canOpen = async (path: string, user: NetworkUser): Promise<boolean> => {
  const text = `try { require('node:fs').openSync(process.argv[1], 'r') } catch { process.exit(${MAY_NOT}) }`
  try {
    const { ended } = startOwnProcess({ argv: ['--eval', text, '--', path], env: {}, stdio: 'ignore', user })
    return (await ended) !== `exit ${MAY_NOT}`
  } catch (error) {
    throw cannotStart(user, error)
  }
}

/** Throws `bad_config` if that user may not execute the runtime that we are, for example because x0x was installed with umask 077. */
export const checkExecutable = async (user: NetworkUser): Promise<void> => {
  const { execPath } = process
  const info = await stat(execPath)
  if (allows(info, user, 1) || (await canExecute(user))) return
  const who = user.name ?? `uid ${user.uid}`
  const remedy = `chmod go+rx ${shellWord(execPath)}`
  const mode = (info.mode & 0o777).toString(8)
  throw new AppError('bad_config', `${who}, as whom the network process runs, may not execute ${execPath} (mode ${mode}): ${remedy}`, {
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
 * Throws `loose_permissions` where that user could read a secret that is the executor's alone. Where an access control list
 * lets anybody read, the mode has it for the group: then he tries. Throws `bad_config` where nobody can become him, and as `checkExecutable`.
 */
export const checkUnreadable = async (secrets: readonly string[], user: NetworkUser): Promise<void> => {
  await checkExecutable(user)
  for (const path of secrets) {
    const info = await stat(path)
    if (!allows(info, user, 4) && ((info.mode & GROUP_READS) === 0 || !(await canOpen(path, user)))) continue
    const who = user.name ?? `uid ${user.uid}`
    const remedy = 'let network_user be a user outside the group of the data directory, and named in no access control list of the file'
    throw new AppError('loose_permissions', `${path} can be read by ${who}, as whom the network's half runs; ${remedy}`, {
      data: { file: path, remedy },
    })
  }
}
