import type { Environment } from '../../base/runtime.ts'
import { programLine, runProgram } from '../../cli/program-line.ts'
import { REXD, REXD_EXEC } from '../../cli/rexd.ts'

/**
 * Runs `rexd` with the words after its name and returns the exit status: 0; 2 for configuration or flags; 128+n for a signal; 1 for
 * anything else. It loads the client or the server, as the line asks.
 */
export const main = async ([word, ...rest]: readonly string[], env: Environment): Promise<number> =>
  word === 'exec'
    ? runProgram(REXD, rest, async (line) => (await import('./exec.ts')).rexdExec(line), {
        read: (words) => programLine(REXD_EXEC, words),
      })
    : runProgram(REXD, word === undefined ? [] : [word, ...rest], async (line) => (await import('./serve.ts')).serveRexd(line, env))
