import { readUpTo } from '../../../base/buffers.ts'
import { AppError, errorText, isAppError } from '../../../base/errors.ts'
import { counted } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { operate } from '../../../clients/operator.ts'
import { CONTACTS, type ContactRecord, type ContactsAnswer, type SelectedHost } from '../../../protocol/api-answers.ts'
import { asCopied } from '../../../protocol/text.ts'
import { labelsText } from '../../../protocol/hosts/labels.ts'
import { TRUST_LEVELS } from '../../../protocol/reasons.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { selectHosts } from '../fleet/fleet-request.ts'
import { printAnswer, printDone, printHint, printLine, printNotice, printTable } from '../print.ts'

const levelShown = ({ trust, revoked }: ContactRecord): string => (revoked ? `revoked (was ${trust})` : trust)

/** The agent's ID, with its newest former key. */
const agentShown = ({ agent_id, formerly: [before] }: ContactRecord): string =>
  before === undefined ? agent_id : `${agent_id} (formerly ${before.slice(0, 12)}…)`

const pinShown = ({ revoked_machines }: ContactRecord, machine: string, digits = 64): string =>
  `${machine.slice(0, digits)}${revoked_machines.includes(machine) ? ' (revoked)' : ''}`

const listed = async ({ api }: CliContext): Promise<ContactsAnswer> => api.read({ method: 'GET', path: '/contacts' }, CONTACTS)

export const runContactsList = async (context: CliContext): Promise<number> => {
  const answer = await listed(context)
  return printAnswer(context, answer, async () => {
    const rows = answer.contacts.map((contact) => [
      contact.name,
      levelShown(contact),
      agentShown(contact),
      contact.machines.map((machine) => pinShown(contact, machine)).join(' ') || '(any machine)',
      labelsText(contact.labels),
    ])
    const none = 'no contacts. To pair with another machine: x0x invite NAME'
    return rows.length === 0 ? printHint(context, none) : printTable(context, ['NAME', 'TRUST', 'AGENT', 'PINNED TO', 'LABELS'], rows)
  })
}

/** Explains a card that the terminal cut: it takes lines of at most 4,095 bytes on Linux and 1,024 on macOS, and drops the rest. */
const cutByTerminal = (card: string, error: AppError): AppError =>
  new AppError(
    'bad_card',
    `${errorText(error)}\nthe terminal cut the line after ${card.length} characters\nTry: x0x contacts import - < FILE`,
    { cause: error, data: error.data },
  )

const checkLevel = (level: string): string => {
  if ((TRUST_LEVELS as readonly string[]).includes(level)) return level
  throw usageError(`unknown trust level ${JSON.stringify(level)}. Use ${TRUST_LEVELS.join(', ')}`)
}

/** Size limit of a card with line breaks. */
const MAX_CARD_TEXT = 64 * 1024

const textOf = async (stdin: CliContext['stdin']): Promise<string> => {
  const bytes = await readUpTo(stdin as AsyncIterable<Uint8Array>, MAX_CARD_TEXT)
  if (bytes === null) throw new AppError('too_large', `standard input has more than ${MAX_CARD_TEXT} bytes, so it is not a card`)
  return bytes.toString('utf8')
}

/** `x0x contacts import LINK`: trust and pins of a known contact stay as they are. */
export const runContactsImport = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [link, name, trust] = [line.words.join(''), line.value('as'), line.value('trust')]
  const card = asCopied(link === '-' ? await textOf(context.stdin) : link)
  const body = {
    card,
    ...(name === null ? {} : { name }),
    ...(line.has('rename') && { rename: true }),
    ...(trust === null ? {} : { trust_level: checkLevel(trust) }),
  }
  try {
    const before = line.has('rename') ? (await listed(context)).contacts : []
    const answer = await operate<{ contact: ContactRecord }>(context, '/agent/card/import', body)
    const old = before.find(({ agent_id }) => agent_id === answer.contact.agent_id)?.name ?? answer.contact.name
    await report(context, answer)
    if (old !== answer.contact.name)
      await printNotice(context, shownLine(`${old} is now ${answer.contact.name}: change groups.toml and scripts that use ${old}`))
    return 0
  } catch (error) {
    throw link === '-' && context.stdin.isTTY === true && isAppError(error, 'bad_card') ? cutByTerminal(card, error) : error
  }
}

export const report = async (context: CliContext, answer: { contact?: ContactRecord }): Promise<number> =>
  printDone(context, answer, async () => {
    const { contact } = answer
    if (contact === undefined) return
    const pins =
      contact.machines.length === 0 ? 'any machine' : `pinned to ${contact.machines.map((id) => pinShown(contact, id, 12)).join(', ')}`
    const labels = labelsText(contact.labels)
    const line = `${contact.name}: ${levelShown(contact)}, ${pins}, agent ${contact.agent_id}${labels && `, ${labels}`}`
    await printLine(context, shownLine(line))
  })

export const runContactsTrust = async (context: CliContext, { words: [contact = '', level = ''] }: CommandLine): Promise<number> =>
  report(context, await operate(context, '/contacts/trust', { contact, level: checkLevel(level) }))

export const runContactsPin = async (context: CliContext, { words: [contact = '', machine_id = ''] }: CommandLine): Promise<number> =>
  report(context, await operate(context, '/contacts/pin', { contact, machine_id }))

export const runContactsUnpin = async (context: CliContext, { words: [contact = '', machine_id = ''] }: CommandLine): Promise<number> =>
  report(context, await operate(context, '/contacts/unpin', { contact, machine_id }))

export const runContactsRemove = async (context: CliContext, { words: [contact = ''] }: CommandLine): Promise<number> => {
  const answer = await operate<object>(context, '/contacts/remove', { contact })
  return printDone(context, answer, async () => printLine(context, shownLine(`${contact}: removed`)))
}

export const runContactsLabel = async (context: CliContext, { words: [contact = '', ...words] }: CommandLine): Promise<number> => {
  const labels: Record<string, string | null> = {}
  for (const word of words) {
    const [, key, value] = /^([^=]+)=(.*)$/su.exec(word) ?? []
    if (key === undefined || value === undefined || key === '__proto__')
      throw usageError(`${JSON.stringify(word)} is not a label`, 'Use KEY=VALUE to add a label, KEY= to remove it')
    if (Object.hasOwn(labels, key)) throw usageError(`the label ${key} is named twice`)
    labels[key] = value === '' ? null : value
  }
  return report(context, await operate<{ contact?: ContactRecord }>(context, '/contacts/label', { contact, labels }))
}

interface Selected {
  readonly hosts: readonly SelectedHost[]
  readonly expression: string
}

const lineOf = ({ host, labels, trust }: SelectedHost, width: number): string =>
  `${host.padEnd(width)}  ${labelsText(labels)}${trust === 'blocked' ? ' (blocked)' : ''}`.trimEnd()

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
