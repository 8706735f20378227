import type { Environment } from '../../base/runtime.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { MCP } from '../../cli/programs.ts'
import { runProgram } from '../../cli/program-line.ts'
import { mcpFlags } from './flags.ts'

const start = async (line: CommandLine, env: Environment): Promise<number> => {
  const flags = mcpFlags(line)
  switch (flags.mode) {
    case 'check':
      return (await import('./check.ts')).check(flags, env)
    case 'init':
      return (await import('./init.ts')).init(flags, env)
    case 'serve':
      return (await import('./serve.ts')).serve(flags, env)
  }
}

/** Returns the exit status: 0; 2 for configuration or flags; 128+n for a signal; 1 for anything else. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(MCP, argv, async (line) => start(line, env))
