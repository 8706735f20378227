/** A hit in a text. `end` is the position after it. */
export interface Hit {
  readonly start: number
  readonly end: number
}

/** Hits that are marked at once, so that a short word does not fill the page with elements. */
const MAX_MARKED = 400

const literal = (text: string): string => text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, '\\$&')

/** All places of a text that have these characters, in any case. An empty search has none. */
export const hitsOf = (text: string, search: string): readonly Hit[] =>
  search === ''
    ? []
    : Array.from(text.matchAll(new RegExp(literal(search), 'giu')), ({ index, 0: found }) => ({ start: index, end: index + found.length }))

/** A part of a text. `hit` is the number of its hit, or null. */
export interface TextPart {
  readonly text: string
  readonly hit: number | null
}

/** The whole text in parts, with the hits around the present one. */
export const partsOf = (text: string, hits: readonly Hit[], at: number): readonly TextPart[] => {
  const first = Math.max(0, at - MAX_MARKED / 2)
  const parts: TextPart[] = []
  let end = 0
  for (const [place, hit] of hits.slice(first, first + MAX_MARKED).entries()) {
    parts.push({ text: text.slice(end, hit.start), hit: null }, { text: text.slice(hit.start, hit.end), hit: first + place })
    end = hit.end
  }
  return [...parts, { text: text.slice(end), hit: null }]
}

/** The next hit, or the previous one. After the last comes the first. */
export const stepOf = (at: number, count: number, by: 1 | -1): number => (count === 0 ? 0 : (at + by + count) % count)

/** Characters of a file name. */
const MAX_FILE_NAME = 120

/**
 * Name for a file with the output of a run: only letters, digits and hyphens, because host and requester choose parts of it. It cannot name
 * a directory, a hidden file or another type.
 */
export const outputFileName = ({ on, request_id }: { readonly on: string | null; readonly request_id: string }, isCut: boolean): string => {
  const words = `x0x ${on ?? 'this machine'} ${request_id}`.match(/[A-Za-z0-9]+/g) ?? []
  return `${words.join('-').slice(0, MAX_FILE_NAME)}${isCut ? '-end' : ''}.txt`
}
