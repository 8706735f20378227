/** Longest pattern that is taken, in characters. */
export const MAX_PATTERN_LENGTH = 1_024
/** Longest path that is compared: what Linux takes. */
export const MAX_PATH_LENGTH = 4_096
/** Comparisons of characters that one path may cost; beyond it the pattern does not fit. */
export const MAX_PATTERN_STEPS = 65_536

const ANY_DIRECTORIES = '**'

/** Which programs may run, by their resolved absolute paths. */
export interface PathPattern {
  readonly text: string
  /** Between the slashes, by their characters; null is `**`. */
  readonly parts: readonly (readonly string[] | null)[]
}

/**
 * Reads a pattern: absolute, or below `home` with `~/`. `*` and `?` stop at a slash, `**` stands alone between two and
 * crosses them; every other character is itself. A text says what is wrong with it.
 */
export const parsePathPattern = (text: string, home: string): PathPattern | string => {
  if (text.length > MAX_PATTERN_LENGTH) return `it has more than ${MAX_PATTERN_LENGTH} characters`
  if (!text.startsWith('/') && !text.startsWith('~/')) return 'it must begin with / or ~/: a bare name says nothing of what runs'
  if (/[\0\n]/.test(text)) return 'it has a NUL character or a line break'
  const whole = text.startsWith('~/') ? `${home === '/' ? '' : home}${text.slice(1)}` : text
  const parts = whole.split('/').slice(1)
  if (parts.some((part) => part === '' || part === '.' || part === '..'))
    return 'it has an empty part, "." or "..", which no resolved path has'
  if (parts.some((part) => part !== ANY_DIRECTORIES && part.includes(ANY_DIRECTORIES))) return '** must stand alone between two slashes'
  return Object.freeze({ text, parts: parts.map((part) => (part === ANY_DIRECTORIES ? null : [...part])) })
}

/** Why a pattern counts for nothing, because its last part says no letter and no digit of a program's name; null: it does. */
export const tooWide = ({ parts }: PathPattern): string | null =>
  parts.at(-1)?.some((character) => /[\p{L}\p{N}]/u.test(character)) === true
    ? null
    : 'it covers whole directories: its last part must name a program, as /usr/bin/df does'

/** Counts what a comparison costs. */
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

/**
 * Whether a sequence fits a pattern with stars. After a star that did not do, only the last one is widened, so that
 * it costs at most the product of both lengths.
 */
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

/** True where a resolved absolute path fits; upper and lower case differ, as file systems keep them. */
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
