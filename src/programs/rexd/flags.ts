import { badFlags } from '../../command-line/bad-flags.ts'
import { helpText } from '../../command-line/help.ts'
import { parseCommandLine } from '../../command-line/parse.ts'
import { REXD } from '../../command-line/rexd.ts'
import { DEFAULT_REXD_CONFIG } from '../../local-api/paths.ts'

/** What the command line of `rexd` says. */
export interface RexdFlags {
  readonly mode: 'stdio' | 'http' | 'check' | 'help' | 'version'
  readonly json: boolean
  /** Ends when standard input does. */
  readonly exitOnEof: boolean
  readonly config: string
  /** The text of `--help` and `--version`. */
  readonly text: string
}

const SILENT = { json: false, exitOnEof: false, config: DEFAULT_REXD_CONFIG }

/** Parses the arguments behind the program's name. Throws `bad_config` naming the flag that is wrong. */
export const parseRexdFlags = (argv: readonly string[], version: string): RexdFlags => {
  const parsed = parseCommandLine(REXD, argv, badFlags)
  const text = parsed.kind === 'help' ? helpText(parsed.path, process.stdout.columns) : `rexd ${version}\n`
  if (parsed.kind !== 'line') return { ...SILENT, mode: parsed.kind, text }
  const { line } = parsed
  const mode = line.has('check') ? 'check' : line.has('http') ? 'http' : 'stdio'
  if (mode === 'stdio' && !line.has('stdio')) throw badFlags('say how it is to be spoken to: --stdio or --http', REXD.name)
  const json = line.has('json')
  if (json && mode !== 'check') throw badFlags('--json goes with --check', REXD.name)
  return { mode, json, exitOnEof: line.has('exit-on-eof'), config: line.value('config') ?? DEFAULT_REXD_CONFIG, text }
}
