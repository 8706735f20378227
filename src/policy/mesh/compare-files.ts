import { octal } from '../../base/format.ts'
import { isWithin } from '../sandbox/autostart-places.ts'
import type { AllowEntry, EntryAsking } from './acl.ts'
import { FILE_RIGHTS, type FileRight, type MatchedGrant, hasRight } from './file-grants.ts'
import { type WiderRight, allows, differs, lackedBy, moreOf, restricts } from './wider-right.ts'

type PlacedGrant = MatchedGrant<AllowEntry>

/** A right of a files table that another file does not have. */
export interface WiderGrant extends PlacedGrant {
  readonly right: FileRight
  readonly wider: readonly WiderRight[]
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
      grantBeyond(before, place, { right, earlier: after.slice(0, index) }).map((wider) => ({ ...place, right, wider })),
    )
  })

/** Paths that an `earlier` table of the new file takes are judged there. */
const grantBeyond = (
  before: readonly PlacedGrant[],
  next: PlacedGrant,
  { right, earlier }: { readonly right: FileRight; readonly earlier: readonly PlacedGrant[] },
): WiderRight[][] => {
  const { root } = next.grant
  const isTheirs = (path: string): boolean => earlier.some(({ grant }) => isWithin(path, grant.root))
  if (isTheirs(root)) return []
  for (const old of before) {
    const contains = isWithin(root, old.grant.root)
    if (!contains && (!isWithin(old.grant.root, root) || isTheirs(old.grant.root))) continue
    const wider = widerThan(old, next, right)
    if (wider.length > 0) return [wider]
    if (contains) return []
  }
  return [[lackedBy('no single files table of', ' has all of this')]]
}

const widerThan = (old: PlacedGrant, next: PlacedGrant, right: FileRight): WiderRight[] => {
  const [was, is] = [old.entry.limits.max_duration_secs, next.entry.limits.max_duration_secs]
  return [
    ...(is > was ? [moreOf('max_duration_secs', is, was)] : []),
    ...(next.entry.discoverable && !old.entry.discoverable ? [allows('discoverable')] : []),
    ...(old.grant.ask && !next.grant.ask ? [restricts('ask')] : []),
    ...fewerApprovers(old.entry.asking, next.entry.asking),
    ...(right === 'read' ? [] : widerWrite(old, next)),
  ]
}

const OTHER_APPROVERS: WiderRight = { gained: 'fewer or other agents must approve', lost: 'more or other agents must approve' }

/** Agents that had to approve, and need not any more. */
export const fewerApprovers = (old: EntryAsking, next: EntryAsking): WiderRight[] =>
  old.approvers.length === 0 ||
  (next.approvers.length > 0 &&
    next.approvers.every((agent) => old.approvers.includes(agent)) &&
    next.approvals_needed >= old.approvals_needed)
    ? []
    : [OTHER_APPROVERS]

const widerWrite = ({ grant: old }: PlacedGrant, { grant: next }: PlacedGrant): WiderRight[] => [
  ...(next.create_dirs && !old.create_dirs ? [allows('create_dirs')] : []),
  ...(next.max_file_bytes > old.max_file_bytes ? [moreOf('max_file_bytes', next.max_file_bytes, old.max_file_bytes)] : []),
  ...((next.max_total_bytes ?? Infinity) > (old.max_total_bytes ?? Infinity)
    ? [moreOf('max_total_bytes', next.max_total_bytes ?? 'not set', old.max_total_bytes ?? 'not set')]
    : []),
  // Files that lie outside of the new root no longer count.
  ...(old.max_total_bytes !== null && next.root !== old.root ? [countsBelow(old.root)] : []),
  ...((next.mode & ~old.mode) === 0 ? [] : [moreOf('mode', octal(next.mode), octal(old.mode))]),
  ...(next.owner === old.owner ? [] : [differs('owner is another')]),
]

const countsBelow = (root: string): WiderRight => ({
  gained: `max_total_bytes counted the files below ${root}`,
  lost: `max_total_bytes counts the files below ${root}`,
})
