import { millisecondsOf } from '../../cli/parse.ts'
import { badFlags, programLine } from '../../cli/program-line.ts'
import { REXD_EXEC } from '../../cli/rexd.ts'
import { DEFAULT_REXD_CONFIG } from '../../clients/paths.ts'
import { ASKS, HOSTS, SECURITIES } from '../../protocol/question.ts'
import type { PlaceOptions } from '../../sdk/commands.ts'
import { present } from '../../sdk/fields.ts'

/** One command to be run through a rexd, and the way there. */
export interface RexdExecFlags {
  /** Null: a rexd of this host is started for it, unless there is a `url`. */
  readonly ssh: string | null
  readonly url: string | null
  readonly tokenFile: string | null
  readonly config: string
  readonly target: string | null
  readonly cwd: string | null
  /** Where it is to run and whom it is to ask. */
  readonly place: PlaceOptions
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

const oneOf = <T extends string>(flag: string, text: string | null, choices: readonly T[]): T | undefined => {
  const found = choices.find((choice) => choice === text)
  if (text === null || found !== undefined) return found
  throw usage(`--${flag}: ${JSON.stringify(text)} is none of ${choices.join(', ')}`)
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
    place: present<PlaceOptions>({
      host: oneOf('host', line.value('host'), HOSTS),
      node: line.value('node') ?? undefined,
      security: oneOf('security', line.value('security'), SECURITIES),
      ask: oneOf('ask', line.value('ask'), ASKS),
    }),
    timeoutMs: seconds(line.value('timeout')),
    stdin: line.has('stdin'),
    tty: line.has('tty'),
    argv: line.words,
  }
}
