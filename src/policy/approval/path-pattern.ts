/** Maximum length of a pattern in characters. */
export const MAX_PATTERN_LENGTH = 1_024
/** Maximum length of a compared path, as in Linux. */
export const MAX_PATH_LENGTH = 4_096
/** Maximum number of character comparisons for one path. Beyond it the pattern does not match. */
export const MAX_PATTERN_STEPS = 65_536

const ANY_DIRECTORIES = '**'

/** A pattern of programs, matched against their resolved absolute paths. */
export interface PathPattern {
  readonly text: string
  /** Path components as characters. Null is `**`. */
  readonly parts: readonly (readonly string[] | null)[]
}

/**
 * Parses a pattern that is absolute or starts with `~/`. `*` and `?` do not match a slash; `**` is a whole component and matches any number
 * of them. All other characters are literal. Returns a text that says what is wrong.
 */
export const parsePathPattern = (text: string, home: string): PathPattern | string => {
  if (text.length > MAX_PATTERN_LENGTH) return `it has more than ${MAX_PATTERN_LENGTH} characters`
  if (!text.startsWith('/') && !text.startsWith('~/')) return 'it must begin with / or ~/'
  if (/[\0\n]/.test(text)) return 'it has a NUL character or a line break'
  const whole = text.startsWith('~/') ? `${home === '/' ? '' : home}${text.slice(1)}` : text
  const parts = whole.split('/').slice(1)
  if (parts.some((part) => part === '' || part === '.' || part === '..'))
    return 'it has an empty part, "." or "..", which no resolved path has'
  if (parts.some((part) => part !== ANY_DIRECTORIES && part.includes(ANY_DIRECTORIES))) return '** must be alone between two slashes'
  return Object.freeze({ text, parts: parts.map((part) => (part === ANY_DIRECTORIES ? null : [...part])) })
}

/** Why a pattern has no effect because its last component has no letter or digit of a name, or null if it has effect. */
export const tooWide = ({ parts }: PathPattern): string | null =>
  parts.at(-1)?.some((character) => /[\p{L}\p{N}]/u.test(character)) === true
    ? null
    : 'it covers whole directories: its last part must name a program, as /usr/bin/df does'

/** Counts the cost of a comparison. */
class Steps {
  #left = MAX_PATTERN_STEPS

  take(): boolean {
    this.#left -= 1
    return this.#left >= 0
  }

  get over(): boolean {
    return this.#left < 0
  }
}

/** Matches a sequence with stars. Only the last star is widened after a mismatch, so the cost is at most the product of both lengths. */
const fitsStars = <P, T>(
  pattern: readonly P[],
  things: readonly T[],
  { isStar, fits, steps }: { isStar: (part: P) => boolean; fits: (part: P, thing: T) => boolean; steps: Steps },
): boolean => {
  let [at, part, star, mark] = [0, 0, -1, 0]
  while (at < things.length) {
    if (!steps.take()) return false
    const wanted = pattern[part]
    if (part < pattern.length && isStar(wanted as P)) {
      star = part
      mark = at
      part += 1
    } else if (part < pattern.length && fits(wanted as P, things[at]!)) {
      at += 1
      part += 1
    } else if (star !== -1 && !steps.over) {
      mark += 1
      at = mark
      part = star + 1
    } else return false
  }
  while (part < pattern.length && isStar(pattern[part]!)) part += 1
  return part === pattern.length
}

/** True if a resolved absolute path matches. Case matters, as file systems preserve it. */
export const matchesPath = ({ parts }: PathPattern, path: string): boolean => {
  if (!path.startsWith('/') || path.length > MAX_PATH_LENGTH || path === '/') return false
  const names = path.split('/').slice(1)
  if (names.some((name) => name === '' || name === '.' || name === '..')) return false
  const steps = new Steps()
  const fitsName = (part: readonly string[] | null, name: readonly string[]): boolean =>
    part !== null &&
    fitsStars(part, name, {
      isStar: (one) => one === '*',
      fits: (one, character) => one === '?' || one === character,
      steps,
    })
  const fits = fitsStars(
    parts,
    names.map((name) => [...name]),
    { isStar: (part) => part === null, fits: fitsName, steps },
  )
  return fits && !steps.over
}
