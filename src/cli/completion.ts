import { basename } from 'node:path'
import {
  type DaemonWords,
  type CommandPath,
  type CommandSpec,
  type Completes,
  HELP_OPTION,
  type OptionSpec,
  isVariadic,
  optionParts,
  optionsOf,
} from './command.ts'

export const SHELLS = ['bash', 'zsh', 'fish'] as const
export type Shell = (typeof SHELLS)[number]

const ASK = 'x0x completion words --'

/**
 * Each script passes the words before the cursor to `x0x completion words`, and completes files if it returns nothing. bash also splits a
 * word at `@`, `=` and `:`, so its script joins such parts without quotes, and passes on only the part that bash replaces, which is `$2`.
 */
export const COMPLETION_SCRIPTS: Readonly<Record<Shell, string>> = {
  bash: `_x0x() {
  local IFS=$'\\n' rest=\${COMP_LINE:0:COMP_POINT} words=() at begun
  for ((at = 0; at <= COMP_CWORD; at++)); do
    if ((at == 0)) || [[ $rest == [[:blank:]]* ]]; then words+=(''); fi
    rest=\${rest#"\${rest%%[![:blank:]]*}"}
    begun=\${COMP_WORDS[at]:0:\${#rest}}
    words[\${#words[@]}-1]+=$begun
    rest=\${rest:\${#begun}}
  done
  begun=\${words[\${#words[@]}-1]#[\\'\\"]}
  begun=\${begun//\\\\/}
  words[\${#words[@]}-1]=$begun
  COMPREPLY=($(${ASK} "\${words[@]}" 2>/dev/null | cut -f1))
  COMPREPLY=("\${COMPREPLY[@]#"\${begun%"$2"}"}")
}
complete -o default -F _x0x x0x x0xd rexd rexec
`,
  zsh: `#compdef x0x x0xd rexd rexec
_x0x() {
  local -a found
  found=("\${(@f)$(${ASK} "\${(@)words[1,CURRENT]}" 2>/dev/null | tr '\\t' ':')}")
  if [[ -n $found[1] ]]; then _describe x0x found; else _files; fi
}
if [[ $funcstack[1] == _x0x ]]; then _x0x "$@"; else compdef _x0x x0x x0xd rexd rexec; fi
`,
  fish: `function __x0x_words
    ${ASK} (commandline -opc) (commandline -ct) 2>/dev/null
end
for program in x0x x0xd rexd rexec
    complete -c $program -f -n 'count (__x0x_words) >/dev/null' -a '(__x0x_words)'
end
`,
}

export type CompletionCandidate = readonly [word: string, text: string]

/** Candidates for the last word of a line. */
export interface Completions {
  readonly candidates: readonly CompletionCandidate[]
  /** The kind of words to ask the daemon for, or null. */
  readonly asked: DaemonWords | null
  /** The part of the last word that is typed already. */
  readonly begun: string
  /** The words of the command before the last one, without options. */
  readonly before: readonly string[]
}

const NOTHING: Completions = { candidates: [], asked: null, begun: '', before: [] }

const optionCandidates = (path: CommandPath): CompletionCandidate[] =>
  [...optionsOf(path), HELP_OPTION].map((option) => [`--${optionParts(option).name}`, option.text])

const valueOption = (path: CommandPath, word: string): OptionSpec | null =>
  optionsOf(path).find((option) => {
    const { name, short, takesValue } = optionParts(option)
    return takesValue && (word === `--${name}` || word === `-${short}`)
  }) ?? null

/** The state after the words before the cursor. */
interface Read {
  readonly path: CommandPath
  readonly before: readonly string[]
  /** The option whose value comes next, or null. */
  readonly option: OptionSpec | null
}

const readLine = (program: CommandSpec, words: readonly string[]): Read => {
  let read: Read = { path: [program], before: [], option: null }
  for (const word of words) {
    const { path, before, option } = read
    if (option !== null) read = { ...read, option: null }
    else if (word.startsWith('-')) read = { ...read, option: valueOption(path, word) }
    else {
      const below = before.length === 0 ? path.at(-1)?.commands?.find(({ name }) => name === word) : undefined
      read = below === undefined ? { ...read, before: [...before, word] } : { ...read, path: [...path, below] }
    }
  }
  return read
}

/** The candidates of an argument; a variadic one repeats. */
const completesAt = ({ arguments: words = [] }: CommandSpec, at: number): Completes | undefined => {
  const last = words.at(-1)
  return (words[at] ?? (last !== undefined && isVariadic(last) ? last : undefined))?.completes
}

/** Subcommands if none is named yet, and programs under this name, such as `x0x mcp`. */
const commandsAfter = (programs: readonly CommandSpec[], { path, before }: Read, isFirst: boolean): CompletionCandidate[] => {
  if (before.length > 0) return []
  const [program] = path
  const others = isFirst ? programs.filter(({ name }) => name.startsWith(`${program.name} `)) : []
  return [...(path.at(-1)?.commands ?? []), ...others].map(({ name, text }) => [name.split(' ').at(-1) ?? '', text])
}

/**
 * The candidates for the last word. `words` are all words before the cursor. The program's name is first, and the last one is partial or
 * empty. There are none for a value, a file, or a command after two dashes.
 */
export const completions = (programs: readonly CommandSpec[], words: readonly string[]): Completions => {
  const line = [basename(words[0] ?? ''), ...words.slice(1)]
  const begun = line.length < 2 ? '' : (line.pop() ?? '')
  const program = programs.filter(({ name }) => name.split(' ').every((word, at) => word === line[at])).at(-1)
  if (program === undefined || line.includes('--')) return NOTHING
  const read = readLine(program, line.slice(program.name.split(' ').length))
  const { path, before, option } = read
  const isOption = option === null && begun.startsWith('-')
  const completes = option === null ? completesAt(path.at(-1)!, before.length) : option.completes
  const fixed: CompletionCandidate[] = typeof completes === 'object' ? completes.map((word) => [word, '']) : []
  const commands = option === null ? commandsAfter(programs, read, line.length === 1) : []
  return {
    candidates: (isOption ? optionCandidates(path) : [...commands, ...fixed]).filter(([word]) => word.startsWith(begun)),
    asked: !isOption && typeof completes === 'string' ? completes : null,
    begun,
    before,
  }
}
