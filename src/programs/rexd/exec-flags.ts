import { millisecondsOf } from '../../command-line/parse.ts'
import { badFlags, programLine } from '../../command-line/program-line.ts'
import { REXD_EXEC } from '../../command-line/rexd.ts'
import { DEFAULT_REXD_CONFIG } from '../../local-api/paths.ts'

/** One command to be run through a rexd, and the way there. */
export interface RexdExecFlags {
  /** Null: a rexd of this host is started for it, unless there is a `url`. */
  readonly ssh: string | null
  readonly url: string | null
  readonly tokenFile: string | null
  readonly config: string
  readonly target: string | null
  readonly cwd: string | null
  /** Milliseconds; null: the server's. */
  readonly timeoutMs: number | null
  readonly stdin: boolean
  readonly tty: boolean
  readonly argv: readonly string[]
}

const usage = (text: string) => badFlags(text, REXD_EXEC.name)

const seconds = (text: string | null): number | null => {
  if (text === null) return null
  const ms = millisecondsOf(text)
  if (ms === null) throw usage(`--timeout: ${JSON.stringify(text)} is not a number of seconds above 0, such as 30 or 2.5`)
  return ms
}

/** What is behind `rexd exec`; a text where help was asked for. Throws `bad_config` naming what is wrong. */
export const parseRexdExecFlags = (argv: readonly string[]): RexdExecFlags | string => {
  const line = programLine(REXD_EXEC, argv)
  if (typeof line === 'string') return line
  if (line.has('url') !== line.has('token-file')) throw usage('--url and --token-file belong together')
  return {
    ssh: line.value('ssh'),
    url: line.value('url'),
    tokenFile: line.value('token-file'),
    config: line.value('config') ?? DEFAULT_REXD_CONFIG,
    target: line.value('target'),
    cwd: line.value('cwd'),
    timeoutMs: seconds(line.value('timeout')),
    stdin: line.has('stdin'),
    tty: line.has('tty'),
    argv: line.words,
  }
}
