import { MAX_PATCH_STEPS } from './limits.ts'
import type { Hunk } from './patch-text.ts'
import { tooMuch } from './refusals.ts'

/** Either the new text, or the hunk that fits nowhere. */
export type Patched = { readonly text: string } | { readonly unmatched: Hunk }

/** Where these lines stand together, from a line on; -1 for nowhere. Takes a step per line (Knuth, Morris, Pratt). */
const findLines = (lines: readonly string[], wanted: readonly string[], from: number): number => {
  // How much of the beginning stands again at the end of each beginning.
  const again = [0]
  for (let at = 1, same = 0; at < wanted.length; at++) {
    while (same > 0 && wanted[at] !== wanted[same]) same = again[same - 1]!
    if (wanted[at] === wanted[same]) same += 1
    again.push(same)
  }
  for (let at = from, same = 0; at < lines.length; at++) {
    while (same > 0 && lines[at] !== wanted[same]) same = again[same - 1]!
    if (lines[at] === wanted[same]) same += 1
    if (same === wanted.length) return at - same + 1
  }
  return -1
}

/** The lines of a file, found exactly or else without regard to blanks at their ends. */
class Lines {
  readonly all: readonly string[]
  #trimmed: readonly string[] | null = null

  constructor(all: readonly string[]) {
    this.all = all
  }

  find(wanted: readonly string[], from: number): number {
    const exact = findLines(this.all, wanted, from)
    if (exact !== -1) return exact
    this.#trimmed ??= this.all.map((line) => line.trimEnd())
    return findLines(
      this.#trimmed,
      wanted.map((line) => line.trimEnd()),
      from,
    )
  }
}

/** Where a hunk goes, not before `from`; -1 for nowhere. Without lines to find: behind its context, else at the end. */
const placeOf = (lines: Lines, { contexts, atEnd }: Hunk, before: readonly string[], from: number): number => {
  let start = from
  for (const context of contexts) {
    const at = lines.find([context], start)
    if (at === -1) return -1
    start = at + 1
  }
  const last = lines.all.length - before.length
  if (before.length === 0) return contexts.length > 0 && !atEnd ? start : last
  if (!atEnd) return lines.find(before, start)
  return last < start ? -1 : lines.find(before, last)
}

/**
 * Changes a text, one hunk after the other and each below the one before. What stays is kept as the file has it; line ends
 * are those of the file, and so is whether the last line has one. Throws `resource_limit` when the search would take too long.
 */
export const applyHunks = (text: string, hunks: readonly Hunk[]): Patched => {
  // As a whole or not at all: a single line that ends otherwise could not be told from its text.
  const end = text.includes('\r\n') && !/(^|[^\r])\n/.test(text) ? '\r\n' : '\n'
  const all = text.split(end)
  const hasEnd = all.at(-1) === ''
  if (hasEnd) all.pop()
  const steps = all.length * hunks.reduce((count, { contexts }) => count + contexts.length + 1, 0)
  if (steps > MAX_PATCH_STEPS) throw tooMuch('patch_steps', steps, MAX_PATCH_STEPS)
  const lines = new Lines(all)
  const textOf = (line: { text: string }): string => (end === '\r\n' ? line.text.replace(/\r$/, '') : line.text)
  const result: string[] = []
  let done = 0
  for (const hunk of hunks) {
    const before = hunk.lines.filter(({ kind }) => kind !== 'add').map(textOf)
    const place = placeOf(lines, hunk, before, done)
    if (place === -1) return { unmatched: hunk }
    while (done < place) result.push(all[done++]!)
    for (const line of hunk.lines) {
      if (line.kind === 'add') result.push(textOf(line))
      else if (line.kind === 'keep') result.push(all[done++]!)
      else done += 1
    }
  }
  while (done < all.length) result.push(all[done++]!)
  return { text: result.join(end) + (hasEnd && result.length > 0 ? end : '') }
}
