import { posix } from 'node:path'
import type { TimeShare } from '../base/time-sharing.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import type { Result } from '../protocol/rexd-answers.ts'
import { MAX_LISTED } from '../protocol/rexd-limits.ts'
import { beneath } from './beneath.ts'
import { type GlobPosition, GlobWork, globOf } from './glob-pattern.ts'
import { forbidden, namingPath, pathOf, requireCount, requirePermit, systemError, tooMuch } from './refusals.ts'
import { BoundedEntries, entriesBelow } from './tree.ts'

/** Names that one pattern is held against: a large tree of sources has a tenth of that. */
const MAX_GLOB_LOOKS = 1_000_000
/** Characters that one pattern compares with others: a second or two of computing, and ten times what a usual pattern takes for all those names. */
const MAX_GLOB_STEPS = 200_000_000

export interface GlobOptions {
  /** Of paths below the permit's: see `globOf`. */
  readonly pattern: string
  /** MAX_LISTED unless told, and at most. */
  readonly maxMatches?: number
}

export type Matches = Omit<Result<'fs.glob'>, 'path'>

/**
 * Paths of whatever kind below a directory that fit a pattern. Links are matched and not followed, directories in which
 * nothing can fit are not looked into. Throws `forbidden_path` for a pattern that begins at `/` or has a `..`,
 * `bad_request` for an empty one, `resource_limit` for one that is too long, `file_error` ENOTDIR for a file, and the
 * reason of the signal. Where it takes too long, MAX_GLOB_LOOKS or MAX_GLOB_STEPS, the answer is truncated.
 */
export const globFiles = async (
  permit: FilePermit,
  { pattern, maxMatches = MAX_LISTED }: GlobOptions,
  share: TimeShare,
): Promise<Matches> => {
  requirePermit(permit, 'read')
  requireCount('max_matches', maxMatches)
  if (maxMatches > MAX_LISTED) throw tooMuch('max_matches', maxMatches, MAX_LISTED)
  const glob = globOf(pattern)
  if (glob === null) throw forbidden(permit, pattern, 'is a pattern that leads out of its directory')
  return namingPath(permit, async () => {
    using place = await beneath(permit)
    if (place.found === null) throw systemError('ENOENT')
    if (!place.found.info.isDirectory()) throw systemError('ENOTDIR')
    const answer = new BoundedEntries<{ path: string }>(maxMatches)
    const onTooDeep = (): void => void (answer.truncated = true)
    const work = new GlobWork({ share }, { max: MAX_GLOB_STEPS })
    const enter = ({ carried, name }: { carried: GlobPosition; name: string }): Promise<GlobPosition | null> => carried.below(name, work)
    let looks = 0
    for await (const { path, name, type, carried } of entriesBelow(place.found.held, { carried: glob, enter, onTooDeep, share })) {
      const isFit = await carried.fits(name, type === 'dir', work)
      if (++looks > MAX_GLOB_LOOKS || work.isTooMuch) {
        answer.truncated = true
        break
      }
      if (isFit && !answer.add({ path: posix.join(pathOf(permit), path) })) break
    }
    return { matches: answer.sorted().map(({ path }) => path), truncated: answer.truncated }
  })
}
