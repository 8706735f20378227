import type { Environment } from '../../base/environment.ts'
import { programLine } from '../../command-line/program-line.ts'
import type { CommandLine } from '../../command-line/parse.ts'
import { REXEC } from '../../command-line/rexec.ts'
import { EXIT_BAD_CONFIG, reportFailure } from '../../supervision/program-exit.ts'
import { checkHost } from './check.ts'
import { runFlagsOf } from './run-flags.ts'
import { runCommand } from './run.ts'
import { EXIT_NO_HOST } from './tell.ts'

/** Where `--list` names no count. */
const LISTED = '10'

/** The parser knows options with a value and options without one; `--list` is both. */
const withCount = (argv: readonly string[]): string[] => {
  const dashes = argv.indexOf('--')
  const end = dashes === -1 ? argv.length : dashes
  const at = argv.findIndex((word, place) => place < end && (word === '--list' || word === '-l'))
  return at === -1 || /^\d/.test(argv[at + 1] ?? '') ? [...argv] : argv.toSpliced(at + 1, 0, LISTED)
}

const dispatch = async (line: CommandLine, env: Environment): Promise<number> => {
  if (line.has('check-host')) return checkHost(env)
  if (line.has('list')) return (await import('./transcripts.ts')).printList(line)
  if (line.has('print')) return (await import('./transcripts.ts')).printTranscript(line, env)
  if (line.has('attach')) {
    const colour = line.has('no-color') ? false : line.has('force-color') ? true : null
    return (await import('./attach.ts')).attach(env, { colour })
  }
  if (line.has('install')) return (await import('./install.ts')).installUnit(env)
  return runCommand(runFlagsOf(line), env)
}

/** Runs `rexec` with the words behind its name and answers the exit status. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> => {
  try {
    const line = programLine(REXEC, withCount(argv))
    if (typeof line !== 'string') return await dispatch(line, env)
    process.stdout.write(line)
    return 0
  } catch (error) {
    // What is wrong with the line is told as such; all else is a failure to reach the host.
    return reportFailure('rexec', error) === EXIT_BAD_CONFIG ? EXIT_BAD_CONFIG : EXIT_NO_HOST
  }
}
