import type { Environment } from '../../base/runtime.ts'
import { UI } from '../../cli/programs.ts'
import { runProgram } from '../../cli/program-line.ts'
import { uiFlags } from './flags.ts'
import { serve } from './serve.ts'

/** Returns the exit status: 0; 2 for flags or an incomplete build; 128+n for a signal; 1 for anything else. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(UI, argv, async (line) => serve(uiFlags(line, env)))
