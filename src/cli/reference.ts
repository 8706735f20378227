import { type CommandPath, type CommandSpec, argumentName, pathText, usageOf } from './command.ts'
import { type Row, helpOptions, optionRow } from './help.ts'

const HEAD = `# The command line

Every command, as \`--help\` tells it, the manual pages (\`x0x man x0x | man -l -\`) and completion
(\`x0x completion bash|zsh|fish\`): all are made from one table. This page is what \`x0x man --markdown\` prints; a test compares them.
Back to [all pages](README.md).
`

const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('<', '&lt;')
const rowText = ([term, text]: Row): string => `| \`${term.replaceAll('|', '\\|')}\` | ${cell(text)} |`

const tableOf = (title: string, rows: readonly Row[]): string[] =>
  rows.length === 0 ? [] : ['', `| ${title} | |`, '|---|---|', ...rows.map(rowText)]

/** What is said of an example behind a wide gap is a comment here: the block is a shell's. */
const exampleLine = (example: string): string => example.replace(/ {2,}(?=\S)/, (gap) => `${gap}# `)

/** What `--help` tells below the options; empty lines there only make room. */
const afterOf = ({ examples = [], notes = [] }: CommandSpec): string[] => {
  const said = notes.filter((line) => line !== '').map(cell)
  return [...(examples.length === 0 ? [] : ['', '```sh', ...examples.map(exampleLine), '```']), ...(said.length === 0 ? [] : ['', ...said])]
}

const sectionOf = (path: CommandPath, depth: number): string[] => {
  const spec = path.at(-1)!
  const { text, arguments: words = [], commands = [] } = spec
  const args = words.flatMap((word): Row[] => (word.text === undefined ? [] : [[argumentName(word), word.text]]))
  return [
    '',
    `${'#'.repeat(depth)} ${pathText(path)}`,
    '',
    `${cell(`${text.slice(0, 1).toUpperCase()}${text.slice(1)}`)}${/[.!?]$/.test(text) ? '' : '.'}`,
    '',
    '```',
    `${pathText(path)} ${usageOf(spec)}`,
    '```',
    ...tableOf('argument', args),
    ...tableOf('option', helpOptions(spec).map(optionRow)),
    ...afterOf(spec),
    ...commands.flatMap((below) => sectionOf([...path, below], Math.min(depth + 1, 4))),
  ]
}

/** The reference of all programs as Markdown. */
export const referencePage = (programs: readonly CommandSpec[]): string =>
  `${[HEAD.trimEnd(), ...programs.flatMap((program) => sectionOf([program], 2))].join('\n')}\n`
