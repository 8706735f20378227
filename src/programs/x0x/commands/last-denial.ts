import { AppError, isAppError } from '../../../base/errors.ts'
import { type AclBesideDaemon, aclInForce, notRunningText } from '../../../doctor/loaded-acl.ts'
import type { DenialEvent, JournalLine } from '../../../journal/events.ts'
import { parseLine } from '../../../journal/parse-line.ts'
import { tailJournal } from '../../../journal/tail.ts'
import { loadAcl } from '../../../policy/mesh/load-acl.ts'
import { MIN_ID_PREFIX } from '../../../protocol/limits/wire.ts'
import { type Contact, findContact } from '../../../trust/contact.ts'
import { Contacts } from '../../../trust/contacts.ts'
import type { CliContext } from '../context.ts'
import { printNotice } from '../print.ts'
import { runningJournal } from './audit.ts'

/** Lines of the audit log that are searched. */
const LINES = 100_000

const ID_BEGINNING = new RegExp(`^[0-9a-f]{${MIN_ID_PREFIX},64}$`)

interface DenialChoice {
  /** Only this denial, or null for the last one. */
  readonly request: string | null
  /** Only denials of this agent: a contact, an ID, or the beginning of an ID. */
  readonly agent: string | null
}

export interface FoundDenial {
  readonly denial: JournalLine & DenialEvent
  /** The requester's contact name, or null. */
  readonly name: string | null
}

/** The ACL of this daemon. Warns on stderr if no daemon runs. */
export const aclInForceHere = async (context: CliContext): Promise<AclBesideDaemon> => {
  const found = await aclInForce(context.api, context.instance, context.env)
  if (!found.isRunning) await printNotice(context, notRunningText(found.file))
  return found
}

const contactsHere = async ({ api }: CliContext): Promise<readonly Contact[]> => {
  try {
    return (await api.json<{ contacts: readonly Contact[] }>({ method: 'GET', path: '/contacts' })).contacts
  } catch (error) {
    if (!isAppError(error, 'daemon_unreachable') || error.data['start'] === undefined) throw error
    const contacts = new Contacts({ path: api.paths.contacts })
    await contacts.load()
    return contacts.list()
  }
}

/** The audit log that the daemon writes or would write. */
const journalHere = async (context: CliContext, { isRunning, file }: AclBesideDaemon): Promise<string> => {
  if (isRunning) return runningJournal(context, 'x0x audit tail', false)
  const { acl } = await loadAcl({ path: file, explicit: true })
  if (acl.audit_log_path !== null) return acl.audit_log_path
  throw new AppError('not_found', `${file} names no audit log`)
}

/** The last matching denial in this machine's audit log. Throws `not_found`, or `unknown_agent`. */
export const lastDenial = async (
  context: CliContext,
  acl: AclBesideDaemon,
  { request, agent }: DenialChoice,
  fits: (denial: DenialEvent) => boolean,
): Promise<FoundDenial> => {
  const contacts = await contactsHere(context)
  const isId = agent !== null && ID_BEGINNING.test(agent) && !contacts.some(({ name }) => name === agent)
  const id = agent === null || isId ? agent : findContact(contacts, agent).agent_id
  const path = await journalHere(context, acl)
  let denial: (JournalLine & DenialEvent) | null = null
  for await (const text of tailJournal(path, { lines: LINES, follow: false })) {
    const line = parseLine(Buffer.from(text))
    if (line?.event !== 'denial' || (id !== null && !line.agent_id.startsWith(id))) continue
    if (request === null ? fits(line) : line.request_id === request) denial = line
  }
  if (denial === null)
    throw new AppError('not_found', `no such denial in the last lines of ${path}`, {
      data: { next: 'Try: x0x audit tail --lines 1000' },
    })
  const { agent_id } = denial
  return { denial, name: contacts.find((one) => one.agent_id === agent_id)?.name ?? null }
}
