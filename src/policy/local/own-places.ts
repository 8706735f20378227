import { existsSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { realPath } from '../../base/real-path.ts'
import { namesBelow } from './authorize.ts'
import type { LocalPolicy } from './policy.ts'

/** Where a path leads whose end is not made yet. */
const leadsTo = (path: string): string => (existsSync(path) ? realPath(path) : join(leadsTo(dirname(path)), basename(path)))

/** True when a path is a directory or stands below it, as links lead to both, which need not be there. */
export const standsIn = (path: string, directory: string): boolean => namesBelow(leadsTo(path), leadsTo(directory)) !== null

/**
 * Why a human would decide nothing here: whoever may look at files reads the operator's key in our data directory, and whoever writes
 * the store allows itself. Null: it is below no root, or there are no files.
 */
export const exposedDataDir = ({ roots, granted }: Pick<LocalPolicy, 'roots' | 'granted'>, dataDir: string): string | null => {
  if (!granted.has('fs.read') && !granted.has('fs.write')) return null
  const root = roots.find(({ real }) => standsIn(dataDir, real) || standsIn(real, dataDir))
  return root === undefined
    ? null
    : `security.allowed_roots: the data directory ${dataDir} is below the root ${root.path}, or around it, so that an agent could read operator.key there and decide by itself: name roots without it, or put it elsewhere (X0X_DATA_DIR)`
}
