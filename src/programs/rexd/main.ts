import type { Environment } from '../../base/environment.ts'
import { ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import { VERSION } from '../../base/version.ts'
import { parseRexdFlags } from './flags.ts'

/** Configuration or flags are wrong. */
const EXIT_BAD_CONFIG = 2
const EXIT_FAILURE = 1

/** Loads what one of its words asks for: a caller, a server, or neither. */
const dispatch = async ([word, ...rest]: readonly string[], env: Environment): Promise<number> => {
  if (word === 'exec') return (await import('./exec.ts')).rexdExec(rest)
  const { mode, ...flags } = parseRexdFlags(word === undefined ? [] : [word, ...rest], VERSION)
  if (mode !== 'help' && mode !== 'version') return (await import('./serve.ts')).serveRexd({ mode, ...flags }, env)
  process.stdout.write(flags.text)
  return 0
}

/** Runs `rexd` with the words behind its name and answers the exit status: 0; 2 for configuration or flags; 128+n for a signal; 1 for anything else. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> => {
  try {
    return await dispatch(argv, env)
  } catch (error) {
    const lines = errorText(error).split('\n')
    process.stderr.write(`${lines.map((line) => `rexd: ${line}`).join('\n')}\n`)
    return isAppError(error) && ERROR_TABLE[error.code].exit === EXIT_BAD_CONFIG ? EXIT_BAD_CONFIG : EXIT_FAILURE
  }
}
