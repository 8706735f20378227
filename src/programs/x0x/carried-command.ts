import type { CommandLine } from '../../cli/parse.ts'
import { usageError } from './failure.ts'

/** The command for another host, after `--`; `own` words come before it. */
export const carriedCommand = ({ words, behindDashes }: CommandLine, own: number): readonly string[] => {
  const next = 'the command stands behind two dashes, word by word, such as: -- echo 42'
  if (behindDashes === null || behindDashes.length === 0) throw usageError('no command given', next)
  if (words.length > own) throw usageError(`${JSON.stringify(words[own])} stands before the two dashes and is no part of the command`, next)
  return behindDashes
}
