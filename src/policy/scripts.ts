import { isAbsolute, posix } from 'node:path'
import { isMissing } from '../base/errors.ts'
import { type ProgramFormat, programFormat } from '../base/executable-format.ts'
import { writableByOthers } from '../base/file-permissions.ts'

/** Code that an interpreter runs. */
export type Given =
  | { readonly kind: 'script'; readonly word: string }
  /** Possibly the file that this argument names, because an unknown option precedes it. */
  | { readonly kind: 'unsure'; readonly word: string }
  /** A module, which is first looked up in the working directory. */
  | { readonly kind: 'module'; readonly word: string }
  /** Text in the arguments or in stdin. */
  | { readonly kind: 'text' }
  /** The arguments show no code. */
  | { readonly kind: 'nothing' }

interface Options {
  readonly names: readonly string[]
  readonly flag: RegExp
  /** Options with a value that is not a file to run. */
  readonly valued: RegExp
  /** Options whose value, or stdin, is the code to run. */
  readonly text: RegExp
  readonly module?: RegExp
}

/** Options of the most used interpreters, from their manuals. Missing ones count as unknown. */
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

/** True for an interpreter with known options. */
export const isUnderstood = (interpreter: string): boolean => optionsOf(interpreter) !== UNKNOWN

/** With these options, Python does not look for modules in the working directory. */
const ISOLATED = /^-[A-Za-z]*[IP]/
/** The value of a long option that may be a file, as in `--require=./x.js`. */
const NAMED_FILE = /^--?[\w-]+=(\.{0,2}[^/=]*\/.*)$/

/** Finds what an interpreter runs by the arguments after it. `interpreter` is its usual name. */
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

/** Absolute paths among these arguments, also after the `=` of an option. */
export const pathsIn = (words: readonly string[]): string[] =>
  words.map((word) => NAMED_FILE.exec(word)?.[1] ?? word).filter((word) => isAbsolute(word))

/** Maximum number of nested interpreters of a script, as in the kernel. */
export const MAX_INTERPRETERS = 5

/** Finds a bare name, as env(1) does, or null if absent. */
export type FindProgram = (name: string) => string | null

/** Returns what the kernel starts for a program. */
type FormatOf = (path: string) => ProgramFormat

/** A program and the interpreter that it starts. */
export interface Interpretation {
  readonly program: string
  readonly interpreter: string
}

/**
 * The interpreters and ELF loaders that start when a program starts. Libraries and modules are not followed. Throws errors of the system,
 * and if the chain cannot be followed.
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

/** Other users' ways to change any of them. Each is one sentence with its remedy. */
export const interpreterProblems = (path: string, find: FindProgram): string[] =>
  interpretersOf(path, find).flatMap(({ program, interpreter }) =>
    writableByOthers(interpreter).map((problem) => `${program} runs ${interpreter}, and ${problem}`),
  )

/** Null for a missing file. The start reports it, and a writable directory is a separate problem. */
const ifThere = (formatOf: FormatOf, path: string): ProgramFormat | null => {
  try {
    return formatOf(path)
  } catch (error) {
    if (isMissing(error)) return null
    throw error
  }
}

/** The script passes env(1) one text, which it splits only with these options. */
const ENV_SPLIT = /^(-[iv]*S|--split-string=)/
/** Options of env(1) without a value. */
const ENV_OPTION = /^(-[iv]*|--ignore-environment|--debug)$/
const ASSIGNMENT = /^[^-=]+=/
/** Characters with a special meaning for env(1). */
const ENV_QUOTING = /["'\\$#]/

/** The program that env(1) starts, after its options and assignments, or null without a program. Throws if this is uncertain. */
const behindEnv = (script: string, argument: string, find: FindProgram): string | null => {
  const words = argument
    .replace(ENV_SPLIT, '')
    .trim()
    .split(/[ \t]+/)
  const before = words.findIndex((word) => !ENV_OPTION.test(word) && !ASSIGNMENT.test(word))
  const name = words[before] ?? ''
  const isPlain = words.slice(0, before + 1).every((word) => !ENV_QUOTING.test(word) && !word.startsWith('PATH='))
  if (name.startsWith('-') || !isPlain || (name.includes('/') && !name.startsWith('/')))
    throw new Error(`${script} uses env with ${argument}, which cannot be checked: name the interpreter`)
  if (name === '') return null
  return name.startsWith('/') ? name : find(name)
}
