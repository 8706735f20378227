import { edits } from '../base/nearest.ts'

/** More edits than this are another word. */
const MAX_EDITS = 3
const MIN_ALIKE = 0.4

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
