import { parseCommandLine } from '../../command-line/parse.ts'
import { helpText } from '../../command-line/help.ts'
import { badFlags } from '../../command-line/bad-flags.ts'
import { X0XD } from '../../command-line/x0xd.ts'
import type { ConfigFlags } from '../../config/config.ts'

/** What the command line of `x0xd` says; null or empty where it is silent. */
export interface DaemonFlags extends ConfigFlags {
  readonly mode: 'run' | 'check' | 'doctor' | 'help' | 'version'
  readonly json: boolean
  /** The text of `--help` and `--version`. */
  readonly text: string
}

/** Settings of config.toml that have a flag of the same name; those that may be repeated are lists. */
const SETTINGS = ['exec-acl', 'api-port']
const LISTS = ['listen', 'bootstrap']

const SILENT = { json: false, name: null, config: null, dataDir: null, executorSocket: null, settings: {} }

/** Parses the arguments behind the program's name. Throws `bad_config` naming the flag that is wrong. */
export const parseDaemonFlags = (argv: readonly string[], version: string): DaemonFlags => {
  const parsed = parseCommandLine(X0XD, argv, badFlags)
  const text = parsed.kind === 'help' ? helpText(parsed.path, process.stdout.columns) : `x0xd ${version}\n`
  if (parsed.kind !== 'line') return { ...SILENT, mode: parsed.kind, text }
  const { line } = parsed
  const mode = line.has('check') ? 'check' : line.has('doctor') ? 'doctor' : 'run'
  const json = line.has('json')
  if (json && mode === 'run') throw badFlags('--json goes with --check or --doctor', X0XD.name)
  const one = SETTINGS.filter((flag) => line.has(flag)).map((flag) => [flag, line.value(flag) ?? ''] as const)
  const many = LISTS.filter((flag) => line.has(flag)).map((flag) => [flag, line.values(flag)] as const)
  return {
    mode,
    json,
    name: line.value('name'),
    config: line.value('config'),
    dataDir: line.value('data-dir'),
    executorSocket: line.value('executor-socket'),
    settings: Object.fromEntries<string | readonly string[]>([...one, ...many]),
    text,
  }
}
