import { constants } from 'node:fs'
import { type FileHandle, open, stat } from 'node:fs/promises'
import { AppError, errnoOf, errorText } from '../base/errors.ts'
import { shellWord } from '../base/format.ts'
import type { DataPaths } from '../clients/paths.ts'
import type { Settings } from './config.ts'

/** The files that members of the group may read, with their modes. Each start makes the socket and `api.port` again. */
const sharedModes = ({ dir, apiToken, metricsToken, operatorKey }: DataPaths): ReadonlyMap<string, number> =>
  new Map([
    [dir, 0o750],
    [apiToken, 0o640],
    [metricsToken, 0o640],
    [operatorKey, 0o640],
  ])

/** Existing files that their group cannot read. */
const closedToGroup = async (paths: DataPaths): Promise<[path: string, mode: number][]> => {
  const all = [...sharedModes(paths)].map(async ([path, mode]): Promise<[string, number][]> => {
    const info = await stat(path).catch(() => null)
    return info === null || (info.mode & mode) === mode ? [] : [[path, mode]]
  })
  return (await Promise.all(all)).flat()
}

interface Advice {
  readonly next: string
  readonly remedy: string
}

/** Advice for a file that the daemon did not make, because chmod(1) would follow a link. */
const moveAway = (path: string): Advice => ({
  next: 'move it away, and the next start makes one',
  remedy: `mv ${shellWord(path)} ${shellWord(`${path}.old`)}`,
})

/** Advice for a file of another user. */
const byHand = (path: string, mode: number): Advice => ({
  next: 'if you intend that, do it yourself',
  remedy: `chmod ${mode.toString(8)} ${shellWord(path)}`,
})

const refused = (path: string, why: string, { next, remedy }: Advice, cause?: unknown): AppError =>
  new AppError('loose_permissions', `${path} is not opened to the group: ${why}; ${next}: ${remedy}`, {
    cause,
    data: { file: path, remedy },
  })

const unopened = (path: string, mode: number, cause: unknown): unknown => {
  switch (errnoOf(cause)) {
    case 'ELOOP':
      return refused(path, 'it is a symbolic link', moveAway(path), cause)
    case 'ENXIO':
      return refused(path, 'it is not a regular file', moveAway(path), cause)
    case 'EACCES':
      return refused(path, 'this user cannot read it', byHand(path, mode), cause)
    default:
      return cause
  }
}

/**
 * Opens a file whose mode is then changed through the descriptor, because its name may lead to another file by then. Throws
 * `loose_permissions` for links of both kinds, for special files, and for files of another user.
 */
const openOwn = async (path: string, mode: number, dir: string): Promise<FileHandle> => {
  // The operator chose the directory, which may be a link, but the daemon made the files in it.
  const flags = path === dir ? constants.O_DIRECTORY : constants.O_NOFOLLOW | constants.O_NONBLOCK
  const file = await open(path, constants.O_RDONLY | flags).catch((error: unknown) => {
    throw unopened(path, mode, error)
  })
  try {
    const info = await file.stat()
    if (info.uid !== process.geteuid?.()) throw refused(path, `it belongs to uid ${info.uid}, not to this user`, byHand(path, mode))
    if (path !== dir && !info.isFile()) throw refused(path, 'it is not a regular file', moveAway(path))
    if (path !== dir && info.nlink > 1) throw refused(path, 'it has another name, as a hard link', moveAway(path))
    return file
  } catch (error) {
    await file.close()
    throw error
  }
}

type Sharing = Pick<Settings, 'share_with_group'> & { readonly paths: DataPaths }

/** Opens the files of a start without `share_with_group` to the group. Throws `loose_permissions`. */
export const shareWithGroup = async ({ share_with_group, paths }: Sharing): Promise<void> => {
  if (!share_with_group) return
  for (const [path, mode] of await closedToGroup(paths)) {
    await using file = await openOwn(path, mode, paths.dir)
    await file.chmod(mode)
  }
}

/** Files that a start would open to the group, and obstacles to that. Changes no file. */
export const judgeSharing = async ({ share_with_group, paths }: Sharing): Promise<{ closed: string[]; problems: string[] }> => {
  const closed = share_with_group ? await closedToGroup(paths) : []
  const judged = closed.map(async ([path, mode]) => {
    await using _file = await openOwn(path, mode, paths.dir)
  })
  const outcomes = await Promise.allSettled(judged)
  const problems = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [errorText(outcome.reason)] : []))
  return { closed: closed.map(([path]) => path), problems }
}
