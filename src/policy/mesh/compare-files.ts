import { octal } from '../../base/format.ts'
import { isWithin } from '../sandbox/autostart-places.ts'
import type { AllowEntry } from './acl.ts'
import { FILE_RIGHTS, type FileRight, type MatchedGrant, hasRight } from './file-grants.ts'

type PlacedGrant = MatchedGrant<AllowEntry>

/** A right of a files table that another file does not have. */
export interface WiderGrant extends PlacedGrant {
  readonly right: FileRight
  readonly why: string
}

const placesOf = (entries: readonly AllowEntry[]): PlacedGrant[] =>
  entries.flatMap((entry) => entry.files.map((grant) => ({ entry, grant })))

/**
 * Rights of files tables in `next` that `old` may lack, for the entries of one pair. For each path, the first table that has the right
 * applies. Roots are compared as text. A root that is a link leads where the link leads, in both files.
 */
export const filesBeyond = (old: readonly AllowEntry[], next: readonly AllowEntry[]): WiderGrant[] =>
  FILE_RIGHTS.flatMap((right) => {
    const has = ({ grant }: PlacedGrant): boolean => hasRight(grant, right)
    const [before, after] = [placesOf(old).filter(has), placesOf(next).filter(has)]
    return after.flatMap((place, index) =>
      grantBeyond(before, place, { right, earlier: after.slice(0, index) }).map((why) => ({ ...place, right, why })),
    )
  })

/** Paths that an `earlier` table of the new file takes are judged there. */
const grantBeyond = (
  before: readonly PlacedGrant[],
  next: PlacedGrant,
  { right, earlier }: { readonly right: FileRight; readonly earlier: readonly PlacedGrant[] },
): string[] => {
  const { root } = next.grant
  const isTheirs = (path: string): boolean => earlier.some(({ grant }) => isWithin(path, grant.root))
  if (isTheirs(root)) return []
  for (const old of before) {
    const contains = isWithin(root, old.grant.root)
    if (!contains && (!isWithin(old.grant.root, root) || isTheirs(old.grant.root))) continue
    const wider = widerThan(old, next, right)
    if (wider.length > 0) return [wider.join('; ')]
    if (contains) return []
  }
  return ['no single files table of the other file has all of this']
}

const widerThan = (old: PlacedGrant, next: PlacedGrant, right: FileRight): string[] => {
  const [was, is] = [old.entry.limits.max_duration_secs, next.entry.limits.max_duration_secs]
  return [
    ...(is > was ? [`max_duration_secs is ${is}, and was ${was}`] : []),
    ...(next.entry.discoverable && !old.entry.discoverable ? ['discoverable is true, and was not'] : []),
    ...(right === 'read' ? [] : widerWrite(old, next)),
  ]
}

const widerWrite = ({ grant: old }: PlacedGrant, { grant: next }: PlacedGrant): string[] => [
  ...(next.create_dirs && !old.create_dirs ? ['create_dirs is true, and was not'] : []),
  ...(next.max_file_bytes > old.max_file_bytes ? [`max_file_bytes is ${next.max_file_bytes}, and was ${old.max_file_bytes}`] : []),
  ...((next.max_total_bytes ?? Infinity) > (old.max_total_bytes ?? Infinity)
    ? [`max_total_bytes is ${next.max_total_bytes ?? 'not set'}, and was ${old.max_total_bytes}`]
    : []),
  // Files that lie outside of the new root no longer count.
  ...(old.max_total_bytes !== null && next.root !== old.root ? [`max_total_bytes counted the files below ${old.root}`] : []),
  ...((next.mode & ~old.mode) === 0 ? [] : [`mode is ${octal(next.mode)}, and was ${octal(old.mode)}`]),
  ...(next.owner === old.owner ? [] : ['owner is another']),
]
