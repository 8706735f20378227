import { type Command, CommanderError } from 'commander'

import { checkInstanceName } from '../daemon/paths.ts'
import { LocalApi } from '../daemon/local-api.ts'
import type { Environment } from '../daemon/config.ts'
import type { CliContext, CliIo } from './context.ts'
import { exitStatusOf, reportFailure, usageError } from './failure.ts'
import { OutputWatch } from './output-watch.ts'
import { write } from './print.ts'
import { processIo } from './process-io.ts'
import { buildProgram, type GlobalOptions } from './program.ts'
import { VERSION } from '../base/version.ts'

/** The command line makes no sense. */
const EXIT_USAGE = 2

const contextOf = (io: CliIo, env: Environment, options: GlobalOptions): CliContext => {
  const name = options.name ?? env['X0X_NAME'] ?? null
  if (name !== null) checkInstanceName(name, options.name === undefined ? 'X0X_NAME' : '--name')
  const instance = { name, dataDir: options.dataDir ?? env['X0X_DATA_DIR'] ?? null }
  const api = new LocalApi({ instance, url: options.api ?? env['X0X_API'] ?? null, env })
  return { ...io, env, instance, json: options.json === true, api }
}

/** `x0x contacts pin` */
const pathOf = (command: Command): string => (command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`)

/** Everything of commander's message on one line, with what it suggests. */
const asUsageError = (error: CommanderError, command: Command): Error =>
  usageError(error.message.replace(/^error: /, '').replaceAll('\n', ' '), `how to use it: ${pathOf(command)} --help`)

/** Runs one command line (the words behind the program's name) and answers the exit status; never throws. */
export const main = async (argv: readonly string[], env: Environment, io: CliIo = processIo()): Promise<number> => {
  const watch = new OutputWatch(io)
  const status = await watch.finish(await runLine(argv, env, io))
  io.endWhereHungUp?.()
  return status
}

const runLine = async (argv: readonly string[], env: Environment, io: CliIo): Promise<number> => {
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
