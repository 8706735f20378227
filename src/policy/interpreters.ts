import { posix } from 'node:path'
import { isMissing } from '../base/errors.ts'
import { writableByOthers } from '../base/file-rights.ts'
import { type ProgramFormat, programFormat } from '../base/program-head.ts'

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
