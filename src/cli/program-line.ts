import { AppError } from '../base/errors.ts'
import { NONE_GIVEN } from '../base/hint.ts'
import { VERSION } from '../base/runtime.ts'
import type { CommandSpec } from './command.ts'
import { EXIT_FAILURE, printFailure } from './exit.ts'
import { helpText } from './help.ts'
import { type CommandLine, parseCommandLine } from './parse.ts'

/** The error for invalid flags. */
export const badFlags = (problem: string, command: string): AppError =>
  new AppError('bad_config', problem, { data: { next: `See: ${command} --help` } })

/** Parses the words after a program's name. Returns the text to print if they ask for help or the version. Throws `bad_config`. */
export const programLine = (program: CommandSpec, argv: readonly string[]): CommandLine | string => {
  const parsed = parseCommandLine(program, argv, badFlags)
  if (parsed.kind === 'line') return parsed.line
  return parsed.kind === 'help' ? helpText(parsed.path, process.stdout.columns) : `${program.name} ${VERSION}\n`
}

interface ProgramOptions {
  /** Reads the words after the program's name; `programLine` unless given. */
  readonly read?: (argv: readonly string[]) => CommandLine | string
  /** Exit status of a failure that is not a wrong command line or configuration. */
  readonly failure?: number
}

/**
 * Runs a program with the words after its name, or prints its help or version, and returns the exit status. An error of `read`
 * or `run` goes to standard error; its hints repeat the options of the line.
 */
export const runProgram = async (
  program: CommandSpec,
  argv: readonly string[],
  run: (line: CommandLine) => Promise<number>,
  { read = (words) => programLine(program, words), failure = EXIT_FAILURE }: ProgramOptions = {},
): Promise<number> => {
  let given = NONE_GIVEN
  try {
    const line = read(argv)
    if (typeof line !== 'string') {
      ;({ given } = line)
      return await run(line)
    }
    process.stdout.write(line)
    return 0
  } catch (error) {
    return printFailure(program.name, error, failure, given)
  }
}
