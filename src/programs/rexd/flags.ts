import { badFlags, programLine } from '../../cli/program-line.ts'
import { REXD } from '../../cli/rexd.ts'
import { DEFAULT_REXD_CONFIG } from '../../clients/paths.ts'

/** What the command line of `rexd` says. */
export interface RexdFlags {
  readonly mode: 'stdio' | 'http' | 'check'
  readonly json: boolean
  /** Ends when standard input does. */
  readonly exitOnEof: boolean
  readonly config: string
}

/** Parses the arguments behind the program's name; a text where help or the version was asked for. Throws `bad_config` naming the flag that is wrong. */
export const parseRexdFlags = (argv: readonly string[]): RexdFlags | string => {
  const line = programLine(REXD, argv)
  if (typeof line === 'string') return line
  const mode = line.has('check') ? 'check' : line.has('http') ? 'http' : 'stdio'
  if (mode === 'stdio' && !line.has('stdio')) throw badFlags('say how it is to be spoken to: --stdio or --http', REXD.name)
  return { mode, json: line.has('json'), exitOnEof: line.has('exit-on-eof'), config: line.value('config') ?? DEFAULT_REXD_CONFIG }
}
