import { AppError } from '../base/errors.ts'
import { VERSION } from '../base/runtime.ts'
import type { CommandSpec } from './command.ts'
import { helpText } from './help.ts'
import { type CommandLine, parseCommandLine } from './parse.ts'

/** Flags of a daemon that make no sense, on one line. */
export const badFlags = (problem: string, command: string): AppError =>
  new AppError('bad_config', `${problem.replace(/\.$/, '')}; how to use it: ${command} --help`)

/** The words behind a program's name, or the text that it prints in place of running: help, or its version. Throws `bad_config`. */
export const programLine = (program: CommandSpec, argv: readonly string[]): CommandLine | string => {
  const parsed = parseCommandLine(program, argv, badFlags)
  if (parsed.kind === 'line') return parsed.line
  return parsed.kind === 'help' ? helpText(parsed.path, process.stdout.columns) : `${program.name} ${VERSION}\n`
}
