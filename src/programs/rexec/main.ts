import type { Environment } from '../../base/runtime.ts'
import { OutputWatch } from '../../cli/output.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { runProgram } from '../../cli/program-line.ts'
import { REXEC, rexecLine } from '../../cli/rexec.ts'
import { EXIT_NO_HOST } from './messages.ts'
import { checkHost, runCommand, runFlagsOf } from './run.ts'

/** Options of lines that do not run a command. */
const MAINTENANCE_COMMANDS = ['list', 'print', 'attach', 'install']

const dispatch = async (line: CommandLine, env: Environment): Promise<number> => {
  if (line.has('check-host')) return checkHost(env)
  if (MAINTENANCE_COMMANDS.some((name) => line.has(name)))
    return (await import('./maintenance-commands.ts')).runMaintenanceCommand(line, env)
  return runCommand(runFlagsOf(line), env)
}

/** Runs `rexec` and returns the exit status. A line with a command never loads `maintenance-commands`. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> => {
  const watch = new OutputWatch('rexec', process)
  return watch.finish(await runProgram(REXEC, argv, async (line) => dispatch(line, env), { read: rexecLine, failure: EXIT_NO_HOST }))
}
