import type { Environment } from '../../base/runtime.ts'
import { printFailure } from '../../cli/exit.ts'
import { parseRexdFlags } from './flags.ts'

/** Loads what one of its words asks for: a caller, a server, or neither. */
const dispatch = async ([word, ...rest]: readonly string[], env: Environment): Promise<number> => {
  if (word === 'exec') return (await import('./exec.ts')).rexdExec(rest)
  const flags = parseRexdFlags(word === undefined ? [] : [word, ...rest])
  if (typeof flags !== 'string') return (await import('./serve.ts')).serveRexd(flags, env)
  process.stdout.write(flags)
  return 0
}

/** Runs `rexd` with the words behind its name and answers the exit status: 0; 2 for configuration or flags; 128+n for a signal; 1 for anything else. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> => {
  try {
    return await dispatch(argv, env)
  } catch (error) {
    return printFailure('rexd', error)
  }
}
