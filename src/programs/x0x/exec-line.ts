import type { ExecOptions } from './commands/exec.ts'
import type { GlobalOptions } from './context.ts'

/** A plain `x0x exec`, as everybody types it. */
export interface ExecLine {
  readonly globals: GlobalOptions
  readonly exec: ExecOptions
}

const SWITCHES = ['--json', '--raw']
const VALUES = ['--name', '--data-dir', '--api', '--timeout', '--stdin-file']
/** Options of exec: none before the word itself. */
const OF_EXEC = ['--raw', '--timeout', '--stdin-file']
/** In place of an agent these are commands of their own. */
const SUBCOMMANDS = ['sessions', 'cancel', 'help']

/**
 * Reads `[OPTION [VALUE]]... exec AGENT [OPTION [VALUE]]... -- ARGV...` as the whole program would. Null for anything
 * that is not plainly this: the whole program takes as long to load as all the rest of a warm run, and decides there.
 */
export const parseExecLine = (argv: readonly string[]): ExecLine | null => {
  const dashes = argv.indexOf('--')
  if (dashes === -1 || dashes === argv.length - 1) return null
  const given = new Map<string, string>()
  const words: string[] = []
  for (let at = 0; at < dashes; at += 1) {
    const word = argv[at]!
    if (given.has(word) || (words.length === 0 && OF_EXEC.includes(word))) return null
    if (SWITCHES.includes(word)) given.set(word, '')
    else if (VALUES.includes(word)) {
      at += 1
      const value = argv[at]!
      if (value === '' || (value.startsWith('-') && value !== '-')) return null
      given.set(word, value)
    } else words.push(word)
  }
  const [command, agent = ''] = words
  if (command !== 'exec' || words.length !== 2 || agent === '' || agent.startsWith('-') || SUBCOMMANDS.includes(agent)) return null
  return { globals: globalsOf(given), exec: execOf(given, agent, argv.slice(dashes + 1)) }
}

const execOf = (given: ReadonlyMap<string, string>, agent: string, argv: readonly string[]): ExecOptions => ({
  agent,
  argv,
  timeout: given.get('--timeout') ?? null,
  stdinFile: given.get('--stdin-file') ?? null,
  raw: given.has('--raw'),
})

const globalsOf = (given: ReadonlyMap<string, string>): GlobalOptions => {
  const [name, dataDir, api] = ['--name', '--data-dir', '--api'].map((flag) => given.get(flag))
  return {
    ...(name === undefined ? {} : { name }),
    ...(dataDir === undefined ? {} : { dataDir }),
    ...(api === undefined ? {} : { api }),
    ...(given.has('--json') ? { json: true } : {}),
  }
}
