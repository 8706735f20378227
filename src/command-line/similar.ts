/** More edits than this are another word. */
const MAX_EDITS = 3
const MIN_ALIKE = 0.4

/** How many letters were left out, added, changed or swapped with their neighbour (optimal string alignment). */
const edits = (a: string, b: string): number => {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const changed = (rows[i - 1]?.[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? (rows[i - 2]?.[j - 2] ?? Infinity) + 1 : Infinity
      row.push(Math.min((rows[i - 1]?.[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, changed, swapped))
    }
    rows.push(row)
  }
  return rows[a.length]?.[b.length] ?? 0
}

/** ` (Did you mean exec?)`, or nothing where no candidate is close. */
export const didYouMean = (word: string, candidates: readonly string[], prefix = ''): string => {
  const close = candidates
    .map((candidate) => ({ candidate, distance: edits(word, candidate), length: Math.max(word.length, candidate.length) }))
    .filter(({ candidate, distance, length }) => candidate.length > 1 && distance <= MAX_EDITS && 1 - distance / length > MIN_ALIKE)
  const best = Math.min(...close.map(({ distance }) => distance))
  const similar = close.filter(({ distance }) => distance === best).map(({ candidate }) => `${prefix}${candidate}`)
  if (similar.length === 0) return ''
  return ` (Did you mean ${similar.length > 1 ? 'one of ' : ''}${similar.sort().join(', ')}?)`
}
