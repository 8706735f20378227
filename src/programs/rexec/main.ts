import type { Environment } from '../../base/environment.ts'
import { rexecLine } from '../../command-line/rexec.ts'
import { OutputWatch } from '../../supervision/program-output.ts'
import { checkHost } from './check.ts'
import { reported } from './reported.ts'
import { runFlagsOf } from './run-flags.ts'
import { runCommand } from './run.ts'

/** Each stands for a whole line; none of them runs a command. */
const WITHOUT_COMMAND = ['list', 'print', 'attach', 'install']

/** Runs `rexec` with the words behind its name and answers the exit status. A line that runs a command loads `without-command` never. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> => {
  const watch = new OutputWatch('rexec', process)
  return watch.finish(await reported(async () => done(argv, env)))
}

const done = async (argv: readonly string[], env: Environment): Promise<number> => {
  const line = rexecLine(argv)
  if (typeof line === 'string') {
    process.stdout.write(line)
    return 0
  }
  if (line.has('check-host')) return checkHost(env)
  if (WITHOUT_COMMAND.some((name) => line.has(name))) return (await import('./without-command.ts')).withoutCommand(line, env)
  return runCommand(runFlagsOf(line), env)
}
