import { constants } from 'node:fs'
import { open, stat } from 'node:fs/promises'

import { AppError, errnoOf } from '../base/errors.ts'
import type { DataPaths } from '../local-api/paths.ts'
import type { Settings } from './settings.ts'

/** What a member of the group reads, and with which mode; the socket and `api.port` are made anew at each start. */
const sharedModes = ({ dir, apiToken, operatorKey }: DataPaths): ReadonlyMap<string, number> =>
  new Map([
    [dir, 0o750],
    [apiToken, 0o640],
    [operatorKey, 0o640],
  ])

/** Those that are there and are closed to their group. */
export const closedToGroup = async (paths: DataPaths): Promise<[path: string, mode: number][]> => {
  const all = [...sharedModes(paths)].map(async ([path, mode]): Promise<[string, number][]> => {
    const info = await stat(path).catch(() => null)
    return info === null || (info.mode & mode) === mode ? [] : [[path, mode]]
  })
  return (await Promise.all(all)).flat()
}

const refused = (path: string, why: string, next: string, remedy: string, cause?: unknown): AppError =>
  new AppError('loose_permissions', `${path} is not opened to the group: ${why}; ${next}: ${remedy}`, {
    cause,
    data: { file: path, remedy },
  })

/** Not made by us as it stands there: chmod(1) would open what it leads to. */
const isNotOurs = (path: string, why: string, cause?: unknown): AppError =>
  refused(path, why, 'move it away, and the next start makes one', `mv ${path} ${path}.old`, cause)

const isAnothers = (path: string, mode: number, why: string, cause?: unknown): AppError =>
  refused(path, why, 'where that is meant, do it yourself', `chmod ${mode.toString(8)} ${path}`, cause)

const unopened = (path: string, mode: number, cause: unknown): unknown => {
  switch (errnoOf(cause)) {
    case 'ELOOP':
      return isNotOurs(path, 'it is a symbolic link', cause)
    case 'ENXIO':
      return isNotOurs(path, 'it is not a regular file', cause)
    case 'EACCES':
      return isAnothers(path, mode, 'we may not read it', cause)
    default:
      return cause
  }
}

/** Changes the mode of the file that it looked at, by its descriptor: a name may lead to another file by then, a link to one of anybody's. */
const openToGroup = async (path: string, mode: number, dir: string): Promise<void> => {
  // The operator chose the directory, perhaps by a link to it; what is in it we made.
  const flags = path === dir ? constants.O_DIRECTORY : constants.O_NOFOLLOW | constants.O_NONBLOCK
  const file = await open(path, constants.O_RDONLY | flags).catch((error: unknown) => {
    throw unopened(path, mode, error)
  })
  try {
    const info = await file.stat()
    if (info.uid !== process.geteuid?.()) throw isAnothers(path, mode, `it belongs to uid ${info.uid}, not to us`)
    if (path !== dir && !info.isFile()) throw isNotOurs(path, 'it is not a regular file')
    if (path !== dir && info.nlink > 1) throw isNotOurs(path, 'it has another name, as a hard link')
    await file.chmod(mode)
  } finally {
    await file.close()
  }
}

/** Opens to the group what a start without `share_with_group` made for its user alone. Throws `loose_permissions` for a link of either kind, what is no file, or what is another's. */
export const shareWithGroup = async ({
  share_with_group,
  paths,
}: Pick<Settings, 'share_with_group'> & { readonly paths: DataPaths }): Promise<void> => {
  if (!share_with_group) return
  for (const [path, mode] of await closedToGroup(paths)) await openToGroup(path, mode, paths.dir)
}
