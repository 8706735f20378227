import { constants } from 'node:os'

/** `1 line`, `2 lines`. */
export const counted = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`

/** The number of edits between two words: letters left out, added, changed or swapped with a neighbour (optimal string alignment). */
export const edits = (a: string, b: string): number => {
  let before: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const changed = last[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? before[j - 2]! + 1 : Infinity
      row.push(Math.min(last[j]! + 1, row[j - 1]! + 1, changed, swapped))
    }
    before = last
    last = row
  }
  return last[b.length]!
}

/** The word that the user probably meant, or null. At most a third of its letters differ. */
export const nearest = (word: string, words: readonly string[]): string | null => {
  const [best] = words
    .map((candidate) => ({ candidate, distance: edits(word, candidate) }))
    .filter(({ candidate, distance }) => distance <= Math.max(1, Math.floor(candidate.length / 3)))
    .toSorted((a, b) => a.distance - b.distance)
  return best?.candidate ?? null
}

/** `. Did you mean X?`, or nothing. */
export const didYouMean = (word: string, words: readonly string[]): string => {
  const meant = nearest(word, words)
  return meant === null ? '' : `. Did you mean ${meant}?`
}

/** A word quoted for a POSIX shell if necessary, so that printed commands can be pasted. */
export const shellWord = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)

export const shellWords = (words: readonly string[]): string => words.map(shellWord).join(' ')

/** `SIGTERM` for 15, or null for a number without a name on this system. */
export const signalName = (number: number): NodeJS.Signals | null =>
  (Object.entries(constants.signals).find(([, value]) => value === number)?.[0] as NodeJS.Signals | undefined) ?? null

/** The permission bits of a file as chmod(1) has them: `0644`. */
export const octal = (mode: number): string => (mode & 0o7777).toString(8).padStart(4, '0')
