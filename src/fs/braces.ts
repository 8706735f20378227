import { tooMuch } from './refusals.ts'

/** Characters of all that the braces of a pattern stand for: it bounds what one name is compared with. */
export const MAX_GLOB_EXPANDED = 16_384

/** The first pair of braces with a comma directly in it; others are plain characters. */
const firstBraces = (text: string): { readonly before: string; readonly choices: readonly string[]; readonly after: string } | null => {
  for (let open = text.indexOf('{'); open !== -1; open = text.indexOf('{', open + 1)) {
    if (isEscaped(text, open)) continue
    const commas: number[] = []
    const close = closingBrace(text, open, commas)
    if (close === -1 || commas.length === 0) continue
    const bounds = [open, ...commas, close]
    const choices = bounds.slice(1).map((end, i) => text.slice(bounds[i]! + 1, end))
    return { before: text.slice(0, open), choices, after: text.slice(close + 1) }
  }
  return null
}

const isEscaped = (text: string, at: number): boolean => {
  let slashes = 0
  while (text[at - 1 - slashes] === '\\') slashes += 1
  return slashes % 2 === 1
}

/** The brace that closes the one at `open`, with the commas that separate its choices; -1 when none does. */
const closingBrace = (text: string, open: number, commas: number[]): number => {
  let depth = 0
  for (let at = open; at < text.length; at++) {
    if (text[at] === '\\') at += 1
    else if (text[at] === '{') depth += 1
    else if (text[at] === '}' && --depth === 0) return at
    else if (text[at] === ',' && depth === 1) commas.push(at)
  }
  return -1
}

/** All that a pattern with `{a,b}` stands for. Throws `resource_limit` when that is more than MAX_GLOB_EXPANDED characters. */
export const expandBraces = (pattern: string): string[] => {
  const braces = firstBraces(pattern)
  if (braces === null) return [pattern]
  const { before, choices, after } = braces
  const ends = expandBraces(after)
  const expanded: string[] = []
  let length = 0
  for (const choice of choices.flatMap(expandBraces)) {
    for (const end of ends) {
      const whole = before + choice + end
      length += whole.length + 1
      if (length > MAX_GLOB_EXPANDED) throw tooMuch('pattern_expanded', length, MAX_GLOB_EXPANDED)
      expanded.push(whole)
    }
  }
  return expanded
}
