import { posix } from 'node:path'

import type { FilePermit } from '../policy/file-permit.ts'
import { MAX_LISTED } from '../protocol/rexd-limits.ts'
import { beneath } from './beneath.ts'
import { globOf, type GlobPosition } from './glob-pattern.ts'
import { MAX_GLOB_LOOKS } from './limits.ts'
import { about, forbidden, pathOf, requireCount, requirePermit, systemError, tooMuch } from './refusals.ts'
import { Answer, entriesBelow } from './tree.ts'

export interface GlobOptions {
  /** Of paths below the permit's: see `globOf`. */
  readonly pattern: string
  /** MAX_LISTED unless told, and at most. */
  readonly maxMatches?: number
}

export interface Matches {
  /** Whole paths, sorted. When truncated, any that there are: not the first of all. */
  readonly matches: string[]
  /** There may be more. */
  readonly truncated: boolean
}

/**
 * Paths of whatever kind below a directory that fit a pattern. Links are matched and not followed, directories in which
 * nothing can fit are not looked into. Throws `forbidden_path` for a pattern that begins at `/` or has a `..`,
 * `bad_request` for an empty one, `resource_limit` for one that is too long, `file_error` ENOTDIR for a file.
 */
export const globFiles = async (permit: FilePermit, { pattern, maxMatches = MAX_LISTED }: GlobOptions): Promise<Matches> => {
  requirePermit(permit, 'read')
  requireCount('max_matches', maxMatches)
  if (maxMatches > MAX_LISTED) throw tooMuch('max_matches', maxMatches, MAX_LISTED)
  const glob = globOf(pattern)
  if (glob === null) throw forbidden(permit, pattern, 'is a pattern that leads out of its directory')
  return about(permit, async () => {
    using place = await beneath(permit)
    if (place.found === null) throw systemError('ENOENT')
    if (!place.found.info.isDirectory()) throw systemError('ENOTDIR')
    const answer = new Answer<{ path: string }>(maxMatches)
    const onTooDeep = (): void => void (answer.truncated = true)
    const enter = ({ carried, name }: { carried: GlobPosition; name: string }): GlobPosition | null => carried.below(name)
    let looks = 0
    for await (const { path, name, type, carried } of entriesBelow(place.found.held, { carried: glob, enter, onTooDeep })) {
      if (++looks > MAX_GLOB_LOOKS) {
        answer.truncated = true
        break
      }
      if (carried.fits(name, type === 'dir') && !answer.add({ path: posix.join(pathOf(permit), path) })) break
    }
    return { matches: answer.sorted().map(({ path }) => path), truncated: answer.truncated }
  })
}
