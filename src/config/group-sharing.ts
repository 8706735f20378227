import { chmod, stat } from 'node:fs/promises'

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

export type Sharing = Pick<Settings, 'share_with_group'> & { readonly paths: DataPaths }

/** Opens to the group what a start without `share_with_group` made for its user alone. */
export const shareWithGroup = async ({ share_with_group, paths }: Sharing): Promise<void> => {
  if (!share_with_group) return
  for (const [path, mode] of await closedToGroup(paths)) await chmod(path, mode)
}
