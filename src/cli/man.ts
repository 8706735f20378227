import { RELEASED, VERSION } from '../base/version.ts'
import { type CommandPath, type CommandSpec, argumentName, pathText, usageOf } from './command.ts'
import { type Row, helpOptions, optionRow } from './help.ts'

/** Text that troff must not take for a request, an escape or a typographic character. */
const escaped = (text: string): string =>
  text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll(/[^\p{ASCII}]/gu, (character) => `\\[u${character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0')}]`)
    .replaceAll(/^(?=[.'])/gm, '\\&')

const rows = (list: readonly Row[]): string[] => list.flatMap(([term, text]) => ['.TP', `.B ${escaped(term)}`, escaped(text || ' ')])

const examplesOf = ({ examples = [], notes = [] }: CommandSpec): string[] =>
  examples.length === 0 && notes.length === 0 ? [] : ['.PP', '.nf', ...[...examples, ...notes].map(escaped), '.fi']

const command = (path: CommandPath): string[] => {
  const spec = path.at(-1)!
  const { text, arguments: words = [], commands = [], options = [] } = spec
  return [
    `.SS ${escaped(`${pathText(path)} ${usageOf(spec)}`)}`,
    escaped(text),
    ...rows(words.flatMap((word): Row[] => (word.text === undefined ? [] : [[argumentName(word), word.text]]))),
    ...rows(options.map(optionRow)),
    ...examplesOf(spec),
    ...commands.flatMap((below) => command([...path, below])),
  ]
}

/** A manual page in the macros of man(7): the program `parts[0]`, and what else is told on its page. */
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
    ...examplesOf(program).slice(1),
  ]
  return `${lines.join('\n')}\n`
}
