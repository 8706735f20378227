import type { Environment } from '../../base/environment.ts'
import { reportFailure } from '../../supervision/program-exit.ts'
import { parseMcpFlags } from './flags.ts'

/** Runs `x0x mcp` with the words behind it and answers the exit status: 0; 2 for configuration or flags; 128+n for a signal; 1 for anything else. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> => {
  try {
    const flags = parseMcpFlags(argv)
    if (typeof flags !== 'string') return await (await import('./serve.ts')).serve(flags, env)
    process.stdout.write(flags)
    return 0
  } catch (error) {
    return reportFailure('x0x mcp', error)
  }
}
