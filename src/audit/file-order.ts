import { readLines } from './read-lines.ts'

/** What of each chain stands in one file. */
export interface JournalPart {
  readonly path: string
  readonly chains: ReadonlyMap<string, { first: number; last: number }>
  /** Chains that those which begin here name as standing before them. */
  readonly follows: ReadonlySet<string>
}

/** Read by form, not parsed: whether it is right is for who verifies. */
const PLACE = /"chain":"([0-9a-f-]{36})","n":(\d{1,15}),/
const AFTER = /"after":\{"chain":"([0-9a-f-]{36})"/
/** Where PLACE ends at the latest. */
const HEAD_CHARS = 200

export const partOf = async (path: string, signal?: AbortSignal): Promise<JournalPart> => {
  const chains = new Map<string, { first: number; last: number }>()
  const follows = new Set<string>()
  for await (const lines of readLines(path, { signal }))
    for (const { bytes } of lines) {
      const [, chain, n] = PLACE.exec(bytes?.toString('latin1', 0, HEAD_CHARS) ?? '') ?? []
      if (chain === undefined) continue
      const seen = chains.get(chain)
      if (seen === undefined) chains.set(chain, { first: Number(n), last: Number(n) })
      else seen.last = Number(n)
      const [, after] = (n === '0' && AFTER.exec(bytes?.toString('latin1') ?? '')) || []
      if (after !== undefined) follows.add(after)
    }
  return { path, chains, follows }
}

const leadsTo = (a: JournalPart, b: JournalPart): boolean =>
  [...b.chains].some(([chain, { first }]) => (a.chains.get(chain)?.last ?? Infinity) < first) ||
  [...b.follows].some((chain) => a.chains.has(chain) && !b.chains.has(chain))

/**
 * Oldest first, as the chains say: by their own count, and by the line that each names before its first. The clock
 * is not asked, for it may be set back. Files of which nothing is said stay in the order in which they were given.
 */
export const inOrder = (parts: readonly JournalPart[]): JournalPart[] => {
  const left = [...parts]
  const ordered: JournalPart[] = []
  while (left.length > 0) {
    const free = left.findIndex((part) => !left.some((other) => other !== part && leadsTo(other, part) && !leadsTo(part, other)))
    // A circle is for who verifies to find.
    ordered.push(...left.splice(Math.max(0, free), 1))
  }
  return ordered
}
