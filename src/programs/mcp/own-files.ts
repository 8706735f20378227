import { existsSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

import { realPath } from '../../base/real-path.ts'
import type { RexdConfig } from '../../config/rexd-config.ts'
import { namesBelow } from '../../policy/local/authorize.ts'
import { keepersDirectory } from './keeper-place.ts'

/** Where a path leads whose end is not made yet. */
const leadsTo = (path: string): string => (existsSync(path) ? realPath(path) : join(leadsTo(dirname(path)), basename(path)))

/** True when a path is a directory or stands below it, as links lead to both, which need not be there. */
export const standsIn = (path: string, directory: string): boolean => namesBelow(leadsTo(path), leadsTo(directory)) !== null

/**
 * What the agent could grant itself, or take out of what is kept of it, by writing files that it may write; one text for each.
 * `record`: the file of its record, null where there is none.
 */
export const writableRules = (
  { path, audit_path, policy }: Pick<RexdConfig, 'path' | 'audit_path' | 'policy'>,
  record: string | null,
): string[] => {
  const { roots, granted } = policy
  if (!granted.has('fs.write')) return []
  return [path, audit_path, record, granted.has('exec.detach') ? keepersDirectory() : null].flatMap((file) => {
    if (file === null) return []
    const root = roots.find(({ real }) => standsIn(file, real))
    return root === undefined
      ? []
      : [`${file} is below ${root.path}, where the agent may write: put it elsewhere, or set security.allow_write to false`]
  })
}
