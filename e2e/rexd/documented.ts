import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

// Reads the tables of docs/rexd.md. They are the contract, and every line of them needs a test.

const DOCUMENT = fileURLToPath(new URL('../../docs/rexd.md', import.meta.url))

/** Fields of the table below a heading, without the header row. */
const tableBelow = (markdown: string, heading: string): string[][] => {
  const section = markdown.split(/^## /m).find((part) => part.startsWith(`${heading}\n`)) ?? ''
  const rows = section
    .split('\n')
    .flatMap((line) => (line.startsWith('| ') && !line.startsWith('| ---') ? [line.slice(2, -2).split(' | ')] : []))
  return rows.slice(1)
}

const NAME = /`([a-z_]+)`(?: \(([^)]*)\))?/g

/** Names in code format, and the names in parentheses after one as its parts. Other parentheses are explanations. */
const membersIn = (cell: string): string[] =>
  [...cell.matchAll(NAME)].flatMap(([, name = '', inner = '']) => [
    name,
    ...[...inner.matchAll(/`([a-z_]+)`/g)].map(([, part]) => `${name}.${part}`),
  ])

const inCode = (cell: string | undefined): string => /^`([\w.]+)`$/.exec(cell ?? '')?.[1] ?? ''

export interface Documented {
  readonly methods: readonly string[]
  /** Members of answers, such as `fs.read:size`. */
  readonly answers: readonly string[]
  readonly events: readonly string[]
  /** Members of events, such as `exec.exit:signal`. */
  readonly params: readonly string[]
  readonly errors: readonly string[]
}

export const readDocumented = (markdown = readFileSync(DOCUMENT, 'utf8')): Documented => {
  const methods = tableBelow(markdown, 'Methods')
  const events: { name: string; members: string[] }[] = []
  for (const [first, said = ''] of tableBelow(markdown, 'Events')) {
    // "the same" refers to the line before, and "as …" to another line. Text after a colon is an explanation.
    const [list = ''] = said.split(':')
    const other = list.startsWith('the same') ? events.at(-1) : events.find(({ name }) => list.startsWith(`as \`${name}\``))
    events.push({ name: inCode(first), members: [...new Set([...(other?.members ?? []), ...membersIn(list)])] })
  }
  const answerOf = (cell = ''): string[] => membersIn(cell.split(':')[0] ?? '')
  return {
    methods: methods.map(([name]) => inCode(name)),
    answers: methods.flatMap(([name, , answer]) => answerOf(answer).map((member) => `${inCode(name)}:${member}`)),
    events: events.map(({ name }) => name),
    params: events.flatMap(({ name, members }) => members.map((member) => `${name}:${member}`)),
    errors: [...new Set(tableBelow(markdown, 'Errors').map(([number = '']) => number))],
  }
}
