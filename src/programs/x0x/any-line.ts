import { type Command, CommanderError } from 'commander'

import type { Environment } from '../../base/environment.ts'
import { VERSION } from '../../base/version.ts'
import { contextOf, type CliIo } from './context.ts'
import { exitStatusOf, reportFailure, usageError } from './failure.ts'
import { write } from './print.ts'
import { buildProgram } from './program.ts'

/** The command line makes no sense. */
const EXIT_USAGE = 2

/** `x0x contacts pin` */
const pathOf = (command: Command): string => (command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`)

/** Everything of commander's message on one line, with what it suggests. */
const asUsageError = (error: CommanderError, command: Command): Error =>
  usageError(error.message.replace(/^error: /, '').replaceAll('\n', ' '), `how to use it: ${pathOf(command)} --help`)

/** Runs any command line and answers the exit status; never throws. */
export const runAnyLine = async (argv: readonly string[], env: Environment, io: CliIo): Promise<number> => {
  let status = 0
  const dashes = argv.indexOf('--')
  const ours = dashes === -1 ? argv : argv.slice(0, dashes)
  const program = buildProgram({
    version: VERSION,
    context: (options) => contextOf(io, env, options),
    done: (value) => (status = value),
    behindDashes: dashes === -1 ? null : argv.slice(dashes + 1),
  })
  let help = ''
  let failed = program
  const collect = (text: string): void => void (help += text)
  const configure = (command: Command): void => {
    const note = (error: CommanderError): never => {
      failed = command
      throw error
    }
    command.exitOverride(note).configureOutput({ writeOut: collect, writeErr: collect, outputError: () => undefined })
    command.commands.forEach(configure)
  }
  configure(program)
  try {
    await program.parseAsync(argv, { from: 'user' })
  } catch (thrown) {
    if (thrown instanceof CommanderError && help !== '') {
      await write(thrown.exitCode === 0 ? io.stdout : io.stderr, help)
      return thrown.exitCode === 0 ? 0 : EXIT_USAGE
    }
    const error = thrown instanceof CommanderError ? asUsageError(thrown, failed) : thrown
    await reportFailure(io, ours.includes('--json'), error)
    return exitStatusOf(error)
  }
  return status
}
