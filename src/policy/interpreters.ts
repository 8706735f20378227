import { posix } from 'node:path'

import { writableByOthersSync } from '../base/files.ts'
import { programFormat, type ProgramFormat } from '../base/program-head.ts'
import { MAX_INTERPRETERS } from '../protocol/containment-limits.ts'

/** Finds a bare name, as env(1) does. Null where there is none. */
export type FindProgram = (name: string) => string | null

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
export const interpretersOf = (program: string, find: FindProgram, depth = 0): Interpretation[] => {
  if (depth > MAX_INTERPRETERS) throw new Error(`${program} names too many interpreters`)
  const format = formatOf(program)
  if (format?.kind !== 'through') return []
  const { interpreter, argument } = format
  if (!interpreter.startsWith('/'))
    throw new Error(`${program} names its interpreter by a relative path (${interpreter}), which is looked up where it starts`)
  const behind = posix.basename(interpreter) === 'env' ? find(programOf(argument)) : null
  return [interpreter, ...(behind === null ? [] : [behind])].flatMap((next) => [
    { program, interpreter: next },
    ...interpretersOf(next, find, depth + 1),
  ])
}

/** Who else could change any of them: one sentence each with its remedy. */
export const interpreterProblems = (path: string, find: FindProgram): string[] =>
  interpretersOf(path, find).flatMap(({ program, interpreter }) =>
    writableByOthersSync(interpreter).map((problem) => `${program} runs ${interpreter}, and ${problem}`),
  )

/** Null for what is not there: whoever starts it says so, and where others could put it its directory is a problem. */
const formatOf = (path: string): ProgramFormat | null => {
  try {
    return programFormat(path)
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return null
    throw error
  }
}

/** The program that env(1) starts: behind its options and assignments. */
const programOf = (argument: string): string => argument.split(/[ \t]+/).find((word) => !word.startsWith('-') && !word.includes('=')) ?? ''
