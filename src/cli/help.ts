import { type CommandPath, type CommandSpec, HELP_OPTION, type OptionSpec, argumentName, pathText, usageOf } from './command.ts'

const DEFAULT_COLUMNS = 80
/** Text in narrower columns is not wrapped. */
const MIN_COLUMNS = 40

/** A term and its description. */
export type HelpRow = readonly [term: string, text: string]

export const optionRow = ({ flags, text, default: value }: OptionSpec): HelpRow => [
  flags,
  value === undefined ? text : `${text} (default: ${JSON.stringify(value)})`,
]

const commandRow = ({ name, summary, text, options, arguments: words = [] }: CommandSpec): HelpRow => [
  [name, ...(options === undefined ? [] : ['[options]']), ...words.map(({ flags }) => flags)].join(' '),
  summary ?? text,
]

export const wrapped = (text: string, columns: number): string[] => {
  if (columns < MIN_COLUMNS) return [text]
  const lines: string[] = []
  let line = ''
  for (const chunk of text.match(/\s*\S+/g) ?? []) {
    if (line !== '' && line.length + chunk.length > columns) {
      lines.push(line)
      line = chunk.trimStart()
    } else line += chunk
  }
  return [...lines, line]
}

/** The options of a command in the order of its help. */
export const helpOptions = ({ options = [] }: CommandSpec): readonly OptionSpec[] => [...options, HELP_OPTION]

/** The text of `--help`. `columns` is the width of the terminal. */
export const helpText = (path: CommandPath, columns = DEFAULT_COLUMNS): string => {
  const command = path.at(-1)!
  const { text, arguments: words = [], commands = [], examples = [], notes = [] } = command
  const helpCommand: HelpRow[] = commands.length === 0 ? [] : [['help [command]', 'display help for command']]
  const sections: [string, HelpRow[]][] = [
    ['Arguments:', words.some((word) => word.text !== undefined) ? words.map((word) => [argumentName(word), word.text ?? '']) : []],
    ['Options:', helpOptions(command).map(optionRow)],
    ['Commands:', [...commands.map(commandRow), ...helpCommand]],
  ]
  const width = Math.max(...sections.flatMap(([, rows]) => rows.map(([term]) => term.length)))
  const indent = `\n${' '.repeat(width + 4)}`
  const row = ([term, about]: HelpRow): string =>
    `  ${about === '' ? term : `${term.padEnd(width)}  ${wrapped(about, columns - width - 4).join(indent)}`}\n`
  const parts = [
    `Usage: ${pathText(path)} ${usageOf(command)}\n`,
    `${wrapped(text, columns).join('\n')}\n`,
    ...sections.filter(([, rows]) => rows.length > 0).map(([title, rows]) => `${title}\n${rows.map(row).join('')}`),
    ...(examples.length === 0 && notes.length === 0 ? [] : [afterText(examples, notes)]),
  ]
  return parts.join('\n')
}

const afterText = (examples: readonly string[], notes: readonly string[]): string =>
  [`Example${examples.length === 1 ? '' : 's'}:`, ...examples.map((line) => `  ${line}`), ...notes, ''].join('\n')
