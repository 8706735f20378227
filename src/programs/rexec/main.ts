import type { Environment } from '../../base/environment.ts'
import { programLine } from '../../command-line/program-line.ts'
import { REXEC } from '../../command-line/rexec.ts'
import { checkHost } from './check.ts'
import { reported } from './reported.ts'
import { runFlagsOf } from './run-flags.ts'
import { runCommand } from './run.ts'

/** Where `--list` names no count. */
const LISTED = '10'
/** Each stands for a whole line; none of them runs a command. */
const WITHOUT_COMMAND = ['list', 'print', 'attach', 'install']

/** The parser knows options with a value and options without one; `--list` is both. */
const withCount = (argv: readonly string[]): string[] => {
  const dashes = argv.indexOf('--')
  const end = dashes === -1 ? argv.length : dashes
  const at = argv.findIndex((word, place) => place < end && (word === '--list' || word === '-l'))
  return at === -1 || /^\d/.test(argv[at + 1] ?? '') ? [...argv] : argv.toSpliced(at + 1, 0, LISTED)
}

/** Runs `rexec` with the words behind its name and answers the exit status. A line that runs a command loads `without-command` never. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  reported(async () => {
    const line = programLine(REXEC, withCount(argv))
    if (typeof line === 'string') {
      process.stdout.write(line)
      return 0
    }
    if (line.has('check-host')) return checkHost(env)
    if (WITHOUT_COMMAND.some((name) => line.has(name))) return (await import('./without-command.ts')).withoutCommand(line, env)
    return runCommand(runFlagsOf(line), env)
  })
