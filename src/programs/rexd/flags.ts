import type { GivenOptions } from '../../base/hint.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { REXD } from '../../cli/rexd.ts'
import { DEFAULT_REXD_CONFIG } from '../../clients/paths.ts'

export interface RexdFlags {
  readonly mode: 'stdio' | 'http' | 'check'
  readonly json: boolean
  /** End when standard input ends. */
  readonly exitOnEof: boolean
  readonly config: string
  /** For hints. */
  readonly given: GivenOptions
}

/** Throws `bad_config` naming the flag that is wrong. */
export const rexdFlags = (line: CommandLine): RexdFlags => {
  const mode = line.has('check') ? 'check' : line.has('http') ? 'http' : 'stdio'
  if (mode === 'stdio' && !line.has('stdio')) throw badFlags('say how it is to be spoken to: --stdio or --http', REXD.name)
  return {
    mode,
    json: line.has('json'),
    exitOnEof: line.has('exit-on-eof'),
    config: line.value('config') ?? DEFAULT_REXD_CONFIG,
    given: line.given,
  }
}
