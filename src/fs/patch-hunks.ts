import type { TimeShare } from '../base/time-sharing.ts'
import type { Hunk } from './patch-text.ts'
import { tooMuch } from './refusals.ts'
import { Sequence } from './sequence.ts'

/** Lines of a file times places where a patch changes it: the search takes up to three times as many steps, some ten nanoseconds each. */
const MAX_PATCH_STEPS = 50_000_000

/** Either the new text, or the hunk that fits nowhere. */
export type Patched = { readonly text: string } | { readonly unmatched: Hunk }

/** Ways to read a line, from the strictest: as it is, without blanks at its end, without those at its beginning as well. */
const READINGS: readonly ((line: string) => string)[] = [(line) => line, (line) => line.trimEnd(), (line) => line.trim()]

/** The lines of a file, found by the strictest reading in which they are there. */
class Lines {
  readonly #share: TimeShare
  readonly #readings: (readonly string[])[]

  constructor(all: readonly string[], share: TimeShare) {
    this.#share = share
    this.#readings = [all]
  }

  get all(): readonly string[] {
    return this.#readings[0]!
  }

  async find(wanted: readonly string[], from: number): Promise<number> {
    for (const [i, read] of READINGS.entries()) {
      const lines = (this.#readings[i] ??= this.all.map(read))
      const at = await new Sequence(wanted.map(read)).find(lines, from, this.#share)
      if (at !== -1) return at
    }
    return -1
  }
}

/** Where a hunk goes, not before `from`; -1 for nowhere. Without lines to find: behind its context, else at the end. */
const placeOf = async (lines: Lines, { contexts, atEnd }: Hunk, before: readonly string[], from: number): Promise<number> => {
  let start = from
  for (const context of contexts) {
    const at = await lines.find([context], start)
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
 * are those of the file, and so is whether the last line has one. Throws `resource_limit` when the search would take too long,
 * and the reason of the signal.
 */
export const applyHunks = async (text: string, hunks: readonly Hunk[], share: TimeShare): Promise<Patched> => {
  // As a whole or not at all: a single line that ends otherwise could not be told from its text.
  const end = text.includes('\r\n') && !/(^|[^\r])\n/.test(text) ? '\r\n' : '\n'
  const all = text.split(end)
  const hasEnd = all.at(-1) === ''
  if (hasEnd) all.pop()
  const steps = all.length * hunks.reduce((count, { contexts }) => count + contexts.length + 1, 0)
  if (steps > MAX_PATCH_STEPS) throw tooMuch('patch_steps', steps, MAX_PATCH_STEPS)
  const lines = new Lines(all, share)
  const textOf = (line: { text: string }): string => (end === '\r\n' ? line.text.replace(/\r$/, '') : line.text)
  const result: string[][] = []
  let done = 0
  for (const hunk of hunks) {
    const before = hunk.lines.filter(({ kind }) => kind !== 'add').map(textOf)
    const place = await placeOf(lines, hunk, before, done)
    if (place === -1) return { unmatched: hunk }
    result.push(all.slice(done, place))
    done = place
    for (const line of hunk.lines) {
      if (line.kind === 'add') result.push([textOf(line)])
      else if (line.kind === 'keep') result.push([all[done++]!])
      else done += 1
    }
  }
  result.push(all.slice(done))
  const changed = result.flat()
  return { text: changed.join(end) + (hasEnd && changed.length > 0 ? end : '') }
}
