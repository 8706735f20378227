import { readLines } from './read-lines.ts'

/** One file of a journal: which lines of which chains stand in it. */
export interface JournalPart {
  readonly path: string
  readonly chains: ReadonlyMap<string, { first: number; last: number }>
  /** Chains that a chain which begins in this file names as the one before it. */
  readonly follows: ReadonlySet<string>
}

/** Found by pattern, not parsed: the verifier checks what the lines say. */
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

type Before = Map<JournalPart, Set<JournalPart>>

/** For each file the files that stand before it, by what the chains in them say. */
const saidBefore = (parts: readonly JournalPart[]): Before => {
  const holders = new Map<string, JournalPart[]>()
  for (const part of parts)
    for (const chain of part.chains.keys()) {
      const known = holders.get(chain)
      if (known === undefined) holders.set(chain, [part])
      else known.push(part)
    }
  const before = parts.map((part): [JournalPart, Set<JournalPart>] => {
    const said = new Set<JournalPart>()
    for (const [chain, { first }] of part.chains)
      for (const other of holders.get(chain) ?? []) if ((other.chains.get(chain)?.last ?? Infinity) < first) said.add(other)
    for (const chain of part.follows) if (!part.chains.has(chain)) for (const other of holders.get(chain) ?? []) said.add(other)
    said.delete(part)
    return [part, said]
  })
  return new Map(before)
}

/**
 * Sorts the files, oldest first: by the numbers of the lines of each chain, and by the line that each chain names as the
 * one before its first. Clocks decide nothing, since they may be set back. Files that no chain orders keep their order.
 */
export const inOrder = (parts: readonly JournalPart[]): JournalPart[] => {
  const said = saidBefore(parts)
  // Two files that each name the other as earlier are not ordered by that.
  const waitsFor = new Map(
    parts.map((part) => [part, new Set([...(said.get(part) ?? [])].filter((other) => said.get(other)?.has(part) !== true))]),
  )
  const ordered: JournalPart[] = []
  while (waitsFor.size > 0) {
    const left = [...waitsFor]
    // A cycle, which the verifier reports.
    const [next] = left.find(([, others]) => others.size === 0) ?? left[0]!
    ordered.push(next)
    waitsFor.delete(next)
    for (const others of waitsFor.values()) others.delete(next)
  }
  return ordered
}
