import type { Environment } from '../../base/environment.ts'
import { runExec } from './commands/exec.ts'
import { contextOf, type CliIo } from './context.ts'
import { parseExecLine } from './exec-line.ts'
import { exitStatusOf, reportFailure } from './failure.ts'
import { OutputWatch } from './output-watch.ts'
import { processIo } from './process-io.ts'

/** Runs one command line (the words behind the program's name) and answers the exit status; never throws. */
export const main = async (argv: readonly string[], env: Environment, io: CliIo = processIo()): Promise<number> => {
  const watch = new OutputWatch(io)
  const status = await watch.finish(await runLine(argv, env, io))
  io.endWhereHungUp?.()
  return status
}

/** What is not a plain `x0x exec` is a bundle of its own. */
const runLine = async (argv: readonly string[], env: Environment, io: CliIo): Promise<number> => {
  const line = parseExecLine(argv)
  if (line === null) return (await import('./any-line.ts')).runAnyLine(argv, env, io)
  try {
    return await runExec(contextOf(io, env, line.globals), line.exec)
  } catch (error) {
    await reportFailure(io, line.globals.json === true, error)
    return exitStatusOf(error)
  }
}
