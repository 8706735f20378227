import { systemClock } from '../../base/clock.ts'
import { createLogger } from '../../base/log.ts'
import type { Environment } from '../../base/runtime.ts'
import { stopConditions } from '../../cli/exit.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags, runProgram } from '../../cli/program-line.ts'
import { REXEC, rexecLine } from '../../cli/rexec.ts'
import { ConsoleCalls } from '../../clients/console.ts'
import { serveConsole } from '../../doors/mcp/console-server.ts'
import { whoamiProblem } from '../../protocol/console/messages.ts'

const serve = async (line: CommandLine, env: Environment): Promise<number> => {
  const whoami = line.value('whoami')
  const problem = whoami === null ? '--whoami NAME is missing: the name of the AI agent' : whoamiProblem(whoami)
  if (whoami === null || problem !== null) throw badFlags(`--${problem}`, REXEC.name)
  const log = createLogger({ name: 'rexec' })
  const stop = stopConditions(log, { untilEof: false })
  const caller = new ConsoleCalls({ clock: systemClock }, { env })
  const components = { input: process.stdin, output: process.stdout, caller, clock: systemClock, log }
  await serveConsole(components, { whoami }, stop.signal)
  return stop.status() ?? 0
}

/** Runs `rexec --mcp-stdio` and returns the exit status: 0; 2 for flags; 128+n for a signal; 1 for anything else. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(REXEC, argv, async (line) => serve(line, env), { read: rexecLine })
