import { RELEASED, VERSION } from '../base/runtime.ts'
import { type CommandPath, type CommandSpec, argumentName, pathText, usageOf } from './command.ts'
import { type HelpRow, helpOptions, optionRow } from './help.ts'
import { BUNDLE, DESK, MCP, UI, X0XD } from './programs.ts'
import { REXD, REXD_EXEC } from './rexd.ts'
import { REXEC } from './rexec.ts'
import { X0X } from './x0x.ts'

/** Escapes text that troff would read as a request, an escape or a typographic character. */
const escaped = (text: string): string =>
  text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll(/[^\p{ASCII}]/gu, (character) => `\\[u${character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0')}]`)
    .replaceAll(/^(?=[.'])/gm, '\\&')

const rows = (list: readonly HelpRow[]): string[] => list.flatMap(([term, text]) => ['.TP', `.B ${escaped(term)}`, escaped(text || ' ')])

/** Examples, exit statuses and notes. */
const afterOf = ({ examples = [], exits = [], notes = [] }: CommandSpec): string[] => [
  ...(examples.length === 0 ? [] : ['.PP', '.nf', ...examples.map(escaped), '.fi']),
  ...(exits.length === 0 ? [] : ['.PP', 'Exit status:', ...rows(exits)]),
  ...notes.flatMap((note) => ['.PP', escaped(note)]),
]

const command = (path: CommandPath): string[] => {
  const spec = path.at(-1)!
  const { text, arguments: words = [], commands = [], options = [] } = spec
  return [
    `.SS ${escaped(`${pathText(path)} ${usageOf(spec)}`)}`,
    escaped(text),
    ...rows(words.flatMap((word): HelpRow[] => (word.text === undefined ? [] : [[argumentName(word), word.text]]))),
    ...rows(options.map(optionRow)),
    ...afterOf(spec),
    ...commands.flatMap((below) => command([...path, below])),
  ]
}

/** A manual page in the macros of man(7) for the program `parts[0]`, with the other commands of its page. */
export const manualPage = (parts: readonly [CommandSpec, ...CommandSpec[]]): string => {
  const [program, ...others] = parts
  const below = [...(program.commands ?? []).flatMap((one) => command([program, one])), ...others.flatMap((one) => command([one]))]
  const lines = [
    `.TH ${program.name.toUpperCase()} 1 "${RELEASED}" "x0x ${VERSION}"`,
    '.SH NAME',
    escaped(`${program.name} - ${program.text}`),
    '.SH SYNOPSIS',
    `.B ${escaped(`${program.name} ${usageOf(program)}`)}`,
    '.SH OPTIONS',
    ...rows(helpOptions(program).map(optionRow)),
    ...(below.length === 0 ? [] : ['.SH COMMANDS', ...below]),
    '.SH EXAMPLES',
    ...afterOf(program).slice(1),
  ]
  return `${lines.join('\n')}\n`
}

const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('<', '&lt;')
const rowText = ([term, text]: HelpRow): string => `| \`${term.replaceAll('|', '\\|')}\` | ${cell(text)} |`

const tableOf = (title: string, rows: readonly HelpRow[]): string[] =>
  rows.length === 0 ? [] : ['', `| ${title} | |`, '|---|---|', ...rows.map(rowText)]

/** Turns the description after a wide gap into a shell comment. */
const exampleLine = (example: string): string => example.replace(/ {2,}(?=\S)/, (gap) => `${gap}# `)

/** Examples, exit statuses and notes in Markdown. */
const markdownAfter = ({ examples = [], exits = [], notes = [] }: CommandSpec): string[] => [
  ...(examples.length === 0 ? [] : ['', '```sh', ...examples.map(exampleLine), '```']),
  ...tableOf('exit status', exits),
  ...notes.flatMap((note) => ['', cell(note)]),
]

/** Heading level of a program. */
const TOP = 2

const sectionOf = (path: CommandPath, depth: number): string[] => {
  const spec = path.at(-1)!
  const { text, arguments: words = [], commands = [] } = spec
  const args = words.flatMap((word): HelpRow[] => (word.text === undefined ? [] : [[argumentName(word), word.text]]))
  const own = depth === TOP ? helpOptions(spec) : (spec.options ?? [])
  return [
    '',
    `${'#'.repeat(depth)} ${pathText(path)}`,
    '',
    `${cell(text)}.`,
    ...(usageOf(spec) === '[options]' ? [] : ['', `\`${pathText(path)} ${usageOf(spec)}\``]),
    ...tableOf(args.length === 0 ? 'option' : own.length === 0 ? 'argument' : 'argument or option', [...args, ...own.map(optionRow)]),
    ...markdownAfter(spec),
    ...commands.flatMap((below) => sectionOf([...path, below], Math.min(depth + 1, 4))),
  ]
}

/** The Markdown reference of all programs, without a title. */
export const referencePage = (programs: readonly CommandSpec[]): string =>
  `${programs
    .flatMap((program) => sectionOf([program], TOP))
    .join('\n')
    .trimStart()}\n`

/** The commands on each program's manual page. Manual pages, completion and the reference use it. The single-file build has only `x0x`. */
export const PAGES: Readonly<Record<string, readonly [CommandSpec, ...CommandSpec[]]>> = {
  x0x: X0X.elsewhere === true ? [X0X] : [X0X, MCP, UI, DESK, BUNDLE],
  x0xd: [X0XD],
  rexd: [REXD, REXD_EXEC],
  rexec: [REXEC],
}
