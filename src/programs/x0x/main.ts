import type { Environment } from '../../base/environment.ts'
import { VERSION } from '../../base/version.ts'
import { parseCommandLine, type CommandLine } from '../../command-line/parse.ts'
import { X0X } from '../../command-line/x0x.ts'
import { carriedCommand } from './carried-command.ts'
import { runExec } from './commands/exec.ts'
import { contextOf, type CliIo } from './context.ts'
import { reported, usageError } from './failure.ts'
import { OutputWatch } from './output-watch.ts'
import { write } from './print.ts'
import { processIo } from './process-io.ts'

/** Runs one command line (the words behind the program's name) and answers the exit status; never throws. */
export const main = async (argv: readonly string[], env: Environment, io: CliIo = processIo()): Promise<number> => {
  const watch = new OutputWatch(io)
  const status = await watch.finish(await runLine(argv, env, io))
  io.endWhereHungUp?.()
  return status
}

const runLine = async (argv: readonly string[], env: Environment, io: CliIo): Promise<number> => {
  const dashes = argv.indexOf('--')
  const json = (dashes === -1 ? argv : argv.slice(0, dashes)).includes('--json')
  return reported(io, json, async () => {
    const parsed = parseCommandLine(X0X, argv, (problem, command) => usageError(problem, `how to use it: ${command} --help`))
    if (parsed.kind === 'line') return runCommand(io, env, parsed.line)
    if (parsed.kind === 'help') return (await import('./other-commands.ts')).printHelp(io, parsed)
    await write(io.stdout, `${VERSION}\n`)
    return 0
  })
}

/** A plain `x0x exec` loads nothing of the other commands, which are a bundle of their own. */
const runCommand = async (io: CliIo, env: Environment, line: CommandLine): Promise<number> => {
  if (line.command !== 'exec' || line.has('cancel')) return (await import('./other-commands.ts')).runOther(io, env, line)
  const [agent] = line.words
  if (agent === undefined) throw usageError('no agent given', 'x0x exec AGENT -- ARGV...')
  const argv = carriedCommand(line, 1)
  const [timeout, stdinFile] = [line.value('timeout'), line.value('stdin-file')]
  return runExec(contextOf(io, env, line), { agent, argv, timeout, stdinFile, raw: line.has('raw') })
}
