import { isAbsolute, posix } from 'node:path'
import { isMissing } from '../base/errors.ts'
import { type ProgramFormat, programFormat } from '../base/executable-format.ts'
import { writableByOthers } from '../base/file-permissions.ts'

/** What an interpreter is given to run. */
export type Given =
  /** The file that this word names. */
  | { readonly kind: 'script'; readonly word: string }
  /** Perhaps the file that this word names: an unknown option stands before it. */
  | { readonly kind: 'unsure'; readonly word: string }
  /** A module, which is looked for first where the program starts. */
  | { readonly kind: 'module'; readonly word: string }
  /** The text that is in its words, or its stdin. */
  | { readonly kind: 'text' }
  /** Nothing that its words say. */
  | { readonly kind: 'nothing' }

interface Options {
  readonly names: readonly string[]
  /** Has nothing behind it. */
  readonly flag: RegExp
  /** Has a word behind it that is no file to run. */
  readonly valued: RegExp
  /** What runs is the word behind it, or stdin. */
  readonly text: RegExp
  readonly module?: RegExp
}

/** Of the interpreters that are used most, by their manuals; whatever is missing here counts as not known. */
const OPTIONS: readonly Options[] = [
  {
    names: ['sh', 'bash', 'rbash', 'dash', 'ash', 'zsh', 'ksh'],
    flag: /^[-+][abefhiklmnprtuvxBCDEHPT]+$|^--(login|norc|noprofile|posix|restricted|verbose)$/,
    valued: /^[-+][abefhiklmnprtuvxBCDEHPT]*[oO]$/,
    text: /^-[abefhiklmnprtuvxBCDEHPT]*[cs]/,
  },
  {
    names: ['python', 'pypy'],
    flag: /^-[bBdEiIOPqRsSuvx]+$|^-[WX]./,
    valued: /^-[WX]$/,
    text: /^-[bBdEiIOPqRsSuvx]*c/,
    module: /^-[bBdEiIOPqRsSuvx]*m$/,
  },
  {
    names: ['perl'],
    flag: /^-[acnpstTuUwWXl0-9]*(i.*)?$|^-[MmICdDx]./,
    valued: /^-I$/,
    text: /^-[acnpstTuUwWXl0-9]*[eE]/,
  },
  {
    names: ['ruby'],
    flag: /^-[alnpswvW0-9]+$|^-[ICEK]./,
    valued: /^-[ICE]$/,
    text: /^-[alnpsw0-9]*e/,
  },
  {
    names: ['node', 'nodejs'],
    flag: /^--(no-[a-z-]+|trace-(warnings|deprecation|uncaught|exit)|enable-source-maps|use-strict|expose-gc|experimental-strip-types)$/,
    valued: /^(-C|--conditions|--input-type|--max-old-space-size)$/,
    text: /^(-e|-p|-pe|--eval|--print)$/,
  },
]
const NONE = /^\b$/
const UNKNOWN: Options = { names: [], flag: NONE, valued: NONE, text: NONE }

const optionsOf = (interpreter: string): Options => OPTIONS.find(({ names }) => names.includes(interpreter)) ?? UNKNOWN

/** True for an interpreter whose options are known. */
export const isUnderstood = (interpreter: string): boolean => optionsOf(interpreter) !== UNKNOWN

/** Python's modules come from elsewhere with these. */
const ISOLATED = /^-[A-Za-z]*[IP]/
/** The value of a long option that may be a file: `--require=./x.js`. */
const NAMED_FILE = /^--?[\w-]+=(\.{0,2}[^/=]*\/.*)$/

/** What an interpreter, by its usual name, is given by the words behind it. */
export const scriptOf = (interpreter: string, words: readonly string[]): Given => {
  const { flag, valued, text, module } = optionsOf(interpreter)
  let isSure = true
  for (let at = 0; at < words.length; at++) {
    const word = words[at]!
    const next = words[at + 1]
    if (word === '-' || text.test(word)) return { kind: 'text' }
    if (module?.test(word) === true)
      return next === undefined || words.slice(0, at + 1).some((one) => ISOLATED.test(one))
        ? { kind: 'text' }
        : { kind: 'module', word: next }
    const file = word === '--' ? next : /^[-+]/.test(word) ? undefined : word
    if (file !== undefined) return { kind: isSure ? 'script' : 'unsure', word: file }
    const named = NAMED_FILE.exec(word)?.[1]
    if (named !== undefined) return { kind: 'unsure', word: named }
    if (valued.test(word)) at += 1
    else if (!flag.test(word) && !word.includes('=')) isSure = false
  }
  return { kind: 'nothing' }
}

/** The absolute paths among these words, and behind the `=` of an option. */
export const pathsIn = (words: readonly string[]): string[] =>
  words.map((word) => NAMED_FILE.exec(word)?.[1] ?? word).filter((word) => isAbsolute(word))

/** Interpreters of interpreters of a script that are followed, as the kernel does. */
export const MAX_INTERPRETERS = 5

/** Finds a bare name, as env(1) does. Null where there is none. */
export type FindProgram = (name: string) => string | null

/** What the kernel starts for a program. */
type FormatOf = (path: string) => ProgramFormat

/** One program that starts another in its place. */
export interface Interpretation {
  readonly program: string
  readonly interpreter: string
}

/**
 * What runs in the end when this program is started: the interpreters of a script, each by the next, and the
 * loader of an ELF file. Libraries and modules are not followed. Throws what the system says of files that cannot
 * be looked at, and where the chain leads nowhere.
 */
export const interpretersOf = (program: string, find: FindProgram, formatOf: FormatOf = programFormat, depth = 0): Interpretation[] => {
  if (depth > MAX_INTERPRETERS) throw new Error(`${program} names too many interpreters`)
  const format = ifThere(formatOf, program)
  if (format?.kind !== 'through') return []
  const { interpreter, argument } = format
  if (!interpreter.startsWith('/'))
    throw new Error(`${program} names its interpreter by a relative path (${interpreter}), which is looked up where it starts`)
  const behind = posix.basename(interpreter) === 'env' ? behindEnv(program, argument, find) : null
  return [interpreter, ...(behind === null ? [] : [behind])].flatMap((next) => [
    { program, interpreter: next },
    ...interpretersOf(next, find, formatOf, depth + 1),
  ])
}

/** Who else could change any of them: one sentence each with its remedy. */
export const interpreterProblems = (path: string, find: FindProgram): string[] =>
  interpretersOf(path, find).flatMap(({ program, interpreter }) =>
    writableByOthers(interpreter).map((problem) => `${program} runs ${interpreter}, and ${problem}`),
  )

/** Null for what is not there: whoever starts it says so, and where others could put it its directory is a problem. */
const ifThere = (formatOf: FormatOf, path: string): ProgramFormat | null => {
  try {
    return formatOf(path)
  } catch (error) {
    if (isMissing(error)) return null
    throw error
  }
}

/** What stands behind env(1) in a script is one text, which it takes apart itself when told so. */
const ENV_SPLIT = /^(-[iv]*S|--split-string=)/
/** Its options that take no word of their own. */
const ENV_OPTION = /^(-[iv]*|--ignore-environment|--debug)$/
const ASSIGNMENT = /^[^-=]+=/
/** What env itself has a meaning for inside a word. */
const ENV_QUOTING = /["'\\$#]/

/** The program that env(1) starts: behind its options and assignments; null for none. Throws where that cannot be told for sure. */
const behindEnv = (script: string, argument: string, find: FindProgram): string | null => {
  const words = argument
    .replace(ENV_SPLIT, '')
    .trim()
    .split(/[ \t]+/)
  const before = words.findIndex((word) => !ENV_OPTION.test(word) && !ASSIGNMENT.test(word))
  const name = words[before] ?? ''
  const isPlain = words.slice(0, before + 1).every((word) => !ENV_QUOTING.test(word) && !word.startsWith('PATH='))
  if (name.startsWith('-') || !isPlain || (name.includes('/') && !name.startsWith('/')))
    throw new Error(`${script} has env start what cannot be followed (${argument}): name the interpreter itself`)
  if (name === '') return null
  return name.startsWith('/') ? name : find(name)
}
