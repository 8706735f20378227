import { counted } from '../../../base/counted.ts'
import { shownLine } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { operate } from '../../../clients/operator.ts'
import type { SelectedHost } from '../../../protocol/api-answers.ts'
import { labelsText } from '../../../protocol/labels.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { selectHosts } from '../fleet/select-hosts.ts'
import { printAnswer, printLine, printNotice } from '../print.ts'
import { type Contact, report } from './contacts.ts'

/** `x0x contacts label NAME key=value... key=`. */
export const runContactsLabel = async (context: CliContext, { words: [contact = '', ...words] }: CommandLine): Promise<number> => {
  const labels: Record<string, string | null> = {}
  for (const word of words) {
    const [, key, value] = /^([^=]+)=(.*)$/su.exec(word) ?? []
    if (key === undefined || value === undefined || key === '__proto__')
      throw usageError(`${JSON.stringify(word)} is no label`, 'key=value gives one, key= takes it away')
    if (Object.hasOwn(labels, key)) throw usageError(`the label ${key} is named twice`)
    labels[key] = value === '' ? null : value
  }
  return report(context, await operate<{ contact?: Contact }>(context, '/contacts/label', { contact, labels }))
}

interface Selected {
  readonly hosts: readonly SelectedHost[]
  readonly expression: string
}

const lineOf = ({ host, labels, trust }: SelectedHost, width: number): string =>
  `${host.padEnd(width)}  ${labelsText(labels)}${trust === 'blocked' ? ' (blocked)' : ''}`.trimEnd()

/** `x0x contacts select WHO...`. */
export const runContactsSelect = async (context: CliContext, line: CommandLine): Promise<number> => {
  const answer = await selectHosts<Selected>(context, line.words)
  return printAnswer(context, answer, async () => {
    const { hosts, expression } = answer
    if (line.has('fold')) return printLine(context, shownLine(expression))
    const width = Math.max(...hosts.map(({ host }) => host.length))
    await printLine(context, hosts.map((host) => shownLine(lineOf(host, width))).join('\n'))
    return printNotice(context, `${counted(hosts.length, 'host')}: ${shownLine(expression)}`)
  })
}
