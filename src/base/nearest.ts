/** Edits (insert, delete, replace) between two short words. */
const distance = (a: string, b: string): number => {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)))
    }
    row = next
  }
  return row[b.length]!
}

/** The word that was probably meant, or null: at most a third of its letters differ. */
export const nearest = (word: string, words: readonly string[]): string | null => {
  const [best] = words
    .map((candidate) => ({ candidate, edits: distance(word, candidate) }))
    .filter(({ candidate, edits }) => edits <= Math.max(1, Math.floor(candidate.length / 3)))
    .toSorted((a, b) => a.edits - b.edits)
  return best?.candidate ?? null
}

/** ` (did you mean X?)`, or nothing. */
export const didYouMean = (word: string, words: readonly string[]): string => {
  const meant = nearest(word, words)
  return meant === null ? '' : ` (did you mean ${meant}?)`
}
