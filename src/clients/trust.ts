import { shellWord } from '../base/format.ts'
import type { ContactsAnswer, PeersAnswer, TrustEvaluation } from '../protocol/api-answers.ts'
import { isHexId } from '../protocol/ids.ts'
import type { TrustCause } from '../protocol/reasons.ts'
import { findContact } from '../trust/contact.ts'
import type { LocalApi } from './daemon.ts'
import { machineNamed, machinesOf } from './machines.ts'

const machineIdOf = async (api: Pick<LocalApi, 'json'>, agent: string, machine: string): Promise<string> => {
  if (isHexId(machine)) return machine
  const [{ contacts }, { peers }] = await Promise.all([
    api.json<ContactsAnswer>({ method: 'GET', path: '/contacts' }),
    api.json<PeersAnswer>({ method: 'GET', path: '/peers' }),
  ])
  const known = machinesOf(agent, contacts, peers)
  if (known.length === 0 && !isHexId(agent)) findContact(contacts, agent)
  return machineNamed(machine, known)
}

/** Asks the daemon how its trust rules evaluate an agent and a machine, each as the user typed it. */
export const evaluateTrust = async (api: Pick<LocalApi, 'json'>, agent: string, machine: string): Promise<TrustEvaluation> => {
  const path = `/trust/evaluate?agent=${encodeURIComponent(agent)}&machine_id=${await machineIdOf(api, agent, machine)}`
  return api.json<TrustEvaluation>({ method: 'GET', path })
}

export const CAUSE_TEXT: Readonly<Record<TrustCause, string>> = {
  own_agent: 'it is this agent, on this machine',
  revoked: 'it has revoked its key, or its presence on that machine',
  no_contact: 'it is not a contact',
  blocked: 'its trust level is blocked',
  pinned_elsewhere: 'it is pinned to another machine',
  level_unknown: 'it is a contact whose trust level is unknown',
  known: 'its trust level is known, and it is not pinned to that machine',
  known_and_pinned: 'its trust level is known, and it is pinned to that machine',
  trusted: 'its trust level is trusted, and it is not pinned to a machine',
  trusted_and_pinned: 'its trust level is trusted, and it is pinned to that machine',
}

/** The command that would let requests pass on to the ACL, or that makes the entry safer, or null if no command helps. */
export const trustRemedy = ({ cause, contact, machine_id }: Pick<TrustEvaluation, 'cause' | 'contact' | 'machine_id'>): string | null => {
  const name = contact === null ? 'NAME' : shellWord(contact.name)
  switch (cause) {
    case 'own_agent':
    case 'known_and_pinned':
    case 'trusted_and_pinned':
      return null
    case 'revoked':
      return 'x0x contacts import LINK   (the card of its new agent)'
    case 'no_contact':
      return 'x0x contacts import LINK --as NAME (LINK: x0x card on its machine), then x0x contacts trust NAME trusted'
    case 'pinned_elsewhere':
    case 'trusted':
      return `x0x contacts pin ${name} ${machine_id}`
    case 'blocked':
    case 'level_unknown':
    case 'known':
      return `x0x contacts trust ${name} trusted`
  }
}
