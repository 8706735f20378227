import { basename } from 'node:path'

import { HELP_OPTION, optionParts, optionsOf, type CommandPath, type CommandSpec } from './command.ts'

export const SHELLS = ['bash', 'zsh', 'fish'] as const
export type Shell = (typeof SHELLS)[number]

const ASK = 'x0x completion words --'

/** Each hands the words up to the cursor to `x0x completion words`; where that has no answer, files are completed. */
export const COMPLETION_SCRIPTS: Readonly<Record<Shell, string>> = {
  bash: `_x0x() {
  local IFS=$'\\n'
  COMPREPLY=($(${ASK} "\${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null | cut -f1))
}
complete -o default -F _x0x x0x x0xd rexd rexec
`,
  zsh: `#compdef x0x x0xd rexd rexec
_x0x() {
  local -a found
  found=("\${(@f)$(${ASK} "\${(@)words[1,CURRENT]}" 2>/dev/null | tr '\\t' ':')}")
  if [[ -n $found[1] ]]; then _describe x0x found; else _files; fi
}
compdef _x0x x0x x0xd rexd rexec
`,
  fish: `function __x0x_words
    ${ASK} (commandline -opc) (commandline -ct) 2>/dev/null
end
for program in x0x x0xd rexd rexec
    complete -c $program -f -n 'count (__x0x_words) >/dev/null' -a '(__x0x_words)'
end
`,
}

type Candidate = readonly [word: string, text: string]

const optionCandidates = (path: CommandPath): Candidate[] =>
  [...optionsOf(path), HELP_OPTION].map((option) => [`--${optionParts(option).name}`, option.text])

/**
 * What may stand last in a command line: `words` are all up to the cursor, the program's name first, the last one
 * begun or empty. Empty where that is not ours to say: a value, a file, a command behind two dashes.
 */
export const completions = (programs: readonly CommandSpec[], words: readonly string[]): readonly Candidate[] => {
  const line = [basename(words[0] ?? ''), ...words.slice(1)]
  const begun = line.length < 2 ? '' : (line.pop() ?? '')
  const named = programs.filter(({ name }) => name.split(' ').every((word, at) => word === line[at]))
  const program = named.at(-1)
  if (program === undefined || line.includes('--')) return []
  let path: CommandPath = [program]
  let valueOf: string | null = null
  for (const word of line.slice(program.name.split(' ').length)) {
    if (valueOf !== null) valueOf = null
    else if (word.startsWith('-')) valueOf = optionsOf(path).some((option) => isOption(option, word)) ? word : null
    else {
      const below = path.at(-1)?.commands?.find(({ name }) => name === word)
      if (below !== undefined) path = [...path, below]
    }
  }
  if (valueOf !== null) return []
  const others = programs.filter(({ name }) => path.length === 1 && name.startsWith(`${program.name} `) && line.length === 1)
  const commands = [...(path.at(-1)?.commands ?? []), ...others].map(({ name, summary, text }): Candidate => [
    name.split(' ').at(-1) ?? '',
    summary ?? text,
  ])
  return (begun.startsWith('-') ? optionCandidates(path) : commands).filter(([word]) => word.startsWith(begun))
}

const isOption = (option: Parameters<typeof optionParts>[0], word: string): boolean => {
  const { name, short, takesValue } = optionParts(option)
  return takesValue && (word === `--${name}` || word === `-${short}`)
}
