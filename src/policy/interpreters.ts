import { posix } from 'node:path'

import { writableByOthersSync } from '../base/files.ts'
import { programFormat, type ProgramFormat } from '../base/program-head.ts'
import { MAX_INTERPRETERS } from '../protocol/containment-limits.ts'

/** Finds a bare name, as env(1) does. Null where there is none. */
export type FindProgram = (name: string) => string | null

/**
 * Who else could change what runs in the end when this program is started: the interpreters of a script, each by
 * the next, and the loader of an ELF file. Libraries and modules are not followed. Throws what the system says of
 * files that cannot be looked at.
 */
export const interpreterProblems = (path: string, find: FindProgram, depth = 0): string[] => {
  if (depth > MAX_INTERPRETERS) return [`${path} names too many interpreters`]
  const format = formatOf(path)
  if (format?.kind !== 'through') return []
  const { interpreter, argument } = format
  if (!interpreter.startsWith('/'))
    return [`${path} names its interpreter by a relative path (${interpreter}), which is looked up where it starts`]
  const behind = posix.basename(interpreter) === 'env' ? find(programOf(argument)) : null
  return [interpreter, ...(behind === null ? [] : [behind])].flatMap((next) => [
    ...writableByOthersSync(next).map((problem) => `${path} runs ${next}, and ${problem}`),
    ...interpreterProblems(next, find, depth + 1),
  ])
}

/** Null for what is not there: whoever starts it says so, and where others could put it its directory was a problem. */
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
