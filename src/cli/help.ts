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

const commandRow = ({ name, text, options, arguments: words = [] }: CommandSpec): HelpRow => [
  [name, ...(options === undefined ? [] : ['[options]']), ...words.map(({ flags }) => flags)].join(' '),
  text,
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
  const { text, arguments: words = [], commands = [], examples = [], notes = [], exits = [] } = command
  const helpCommand: HelpRow[] = commands.length === 0 ? [] : [['help [command]', 'Show the help of a command']]
  const sections: [string, HelpRow[]][] = [
    ['Arguments:', words.some((word) => word.text !== undefined) ? words.map((word) => [argumentName(word), word.text ?? '']) : []],
    ['Options:', helpOptions(command).map(optionRow)],
    ['Commands:', [...commands.map(commandRow), ...helpCommand]],
  ]
  const width = widthOf(sections.flatMap(([, rows]) => rows))
  const parts = [
    `Usage: ${pathText(path)} ${usageOf(command)}\n`,
    `${wrapped(text, columns).join('\n')}\n`,
    ...sections.flatMap(([title, rows]) => sectionText(title, rows, width, columns)),
    ...(examples.length === 0 ? [] : [`Example${examples.length === 1 ? '' : 's'}:\n${examples.map((line) => `  ${line}\n`).join('')}`]),
    ...sectionText('Exit status:', exits, widthOf(exits), columns),
    ...notes.map((note) => `${wrapped(note, columns).join('\n')}\n`),
  ]
  return parts.join('\n')
}

const widthOf = (rows: readonly HelpRow[]): number => Math.max(...rows.map(([term]) => term.length))

const sectionText = (title: string, rows: readonly HelpRow[], width: number, columns: number): string[] => {
  if (rows.length === 0) return []
  const indent = `\n${' '.repeat(width + 4)}`
  const lines = rows.map(
    ([term, about]) => `  ${about === '' ? term : `${term.padEnd(width)}  ${wrapped(about, columns - width - 4).join(indent)}`}\n`,
  )
  return [`${title}\n${lines.join('')}`]
}
