import { AppError } from '../base/errors.ts'
import { MAX_FANOUT_HOSTS } from './fanout-limits.ts'
import { MAX_HOST_WORDS } from './fleet-limits.ts'
import { labelProblem } from './labels.ts'
import { MAX_NAME } from './limits.ts'
import { type NodeSet, parseNodeSet } from './node-set.ts'

/** One part of what says whom is meant. */
export type HostPart =
  /** A contact's name, an id, or the beginning of one. */
  | { readonly kind: 'one'; readonly text: string }
  /** Of names of contacts. */
  | { readonly kind: 'set'; readonly set: NodeSet }
  | { readonly kind: 'group'; readonly name: string }
  | { readonly kind: 'label'; readonly key: string; readonly value: string }

/** Whom some words mean: all that is in the one list and not in the other. */
export interface HostExpression {
  readonly include: readonly HostPart[]
  readonly leaveOut: readonly HostPart[]
}

const GROUP = new RegExp(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,${MAX_NAME - 1}}$`)

export const groupNameProblem = (name: string): string | null =>
  GROUP.test(name)
    ? null
    : `${JSON.stringify(name.slice(0, 80))} is no name of a group: 1 to ${MAX_NAME} of letters, digits, ".", "_" and "-", the first no "." and no "-"`

const refuse = (why: string): never => {
  throw new AppError('bad_request', why)
}

/** Cuts at the commas that are in no bracket; what is wrong with the brackets is found by who reads the parts. */
const partsOf = (word: string): string[] => {
  const parts: string[] = []
  let [from, depth] = [0, 0]
  for (let at = 0; at < word.length; at++) {
    const character = word[at]
    if (character === '[') depth++
    else if (character === ']') depth--
    else if (character === ',' && depth <= 0) {
      parts.push(word.slice(from, at))
      from = at + 1
    }
  }
  return [...parts, word.slice(from)]
}

const partOf = (text: string): HostPart => {
  if (text === '') return refuse('a host is missing: a word, or what stands before or behind a comma, is empty')
  if (text.startsWith('@')) {
    const problem = groupNameProblem(text.slice(1))
    return problem === null ? { kind: 'group', name: text.slice(1) } : refuse(problem)
  }
  const sign = text.indexOf('=')
  if (sign !== -1) {
    const [key, value] = [text.slice(0, sign), text.slice(sign + 1)]
    const problem = labelProblem(key, value)
    return problem === null ? { kind: 'label', key, value } : refuse(problem)
  }
  const set = parseNodeSet(text)
  const [{ brackets }] = set.patterns as [NodeSet['patterns'][number]]
  return brackets.length === 0 ? { kind: 'one', text } : { kind: 'set', set }
}

/**
 * Reads the words of WHO: each a name, an id, a node set, `@group` or `key=value`, or several with commas between, and each
 * of these with a `!` before it where it is left out. Throws `bad_request`, also where node sets mean more than may be asked.
 */
export const parseHostExpression = (words: readonly string[]): HostExpression => {
  if (words.reduce((sum, word) => sum + word.length, 0) > MAX_HOST_WORDS)
    refuse(`whom is meant is said in at most ${MAX_HOST_WORDS} characters`)
  const include: HostPart[] = []
  const leaveOut: HostPart[] = []
  for (const word of words) {
    const parts = partsOf(word)
    if (word.startsWith('!') && parts.some((part) => !part.startsWith('!')))
      refuse(`${JSON.stringify(word.slice(0, 80))} leaves out its first part alone: write the ! before each, or what is meant before it`)
    for (const part of parts) {
      if (part.startsWith('!')) leaveOut.push(partOf(part.slice(1)))
      else include.push(partOf(part))
    }
  }
  if (include.length === 0) refuse('these words leave out and name nobody')
  for (const list of [include, leaveOut]) {
    const count = list.reduce((sum, part) => sum + (part.kind === 'set' ? part.set.count : 1), 0)
    if (count > MAX_FANOUT_HOSTS) refuse(`these words mean ${count} hosts, and at most ${MAX_FANOUT_HOSTS} may be asked`)
  }
  return { include, leaveOut }
}
