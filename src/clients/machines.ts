import { AppError } from '../base/errors.ts'
import type { ContactRecord, PeerJson } from '../protocol/api-answers.ts'
import { isHexId } from '../protocol/ids.ts'
import { MIN_ID_PREFIX } from '../protocol/limits/wire.ts'

export interface KnownMachine {
  readonly machine_id: string
  /** The name that the machine reports, or the one it is pinned under. */
  readonly name: string | null
}

type KnownContact = Pick<ContactRecord, 'name' | 'agent_id' | 'machines'>
type KnownPeer = Pick<PeerJson, 'agent_id' | 'machine_id' | 'name'>

/** Machines that the agent is pinned to or was seen on. `agent` is a contact's name, an ID or its beginning. */
export const machinesOf = (agent: string, contacts: readonly KnownContact[], peers: readonly KnownPeer[]): KnownMachine[] => {
  const begins = (id: string | null): boolean => id !== null && agent.length >= MIN_ID_PREFIX && id.startsWith(agent)
  const contact = contacts.find(({ name }) => name === agent) ?? contacts.find(({ agent_id }) => begins(agent_id))
  const seen = peers.filter(({ agent_id }) => (contact === undefined ? begins(agent_id) : agent_id === contact.agent_id))
  const pinned = (contact?.machines ?? []).map((machine_id) => ({ machine_id, name: 'pinned' }))
  return [...pinned, ...seen]
}

/**
 * The machine that a user names. A name is the whole ID of 64 hex characters, a name, or six or more first characters of the ID. Throws
 * `bad_request` if no machine or several machines fit.
 */
export const machineNamed = (text: string, known: readonly KnownMachine[]): string => {
  if (isHexId(text)) return text
  const fitting = known.filter(({ machine_id, name }) => name === text || (text.length >= MIN_ID_PREFIX && machine_id.startsWith(text)))
  const [first, ...others] = new Set(fitting.map(({ machine_id }) => machine_id))
  if (first !== undefined && others.length === 0) return first
  const ids = [...new Set((fitting.length > 0 ? fitting : known).map(({ machine_id }) => machine_id))]
  const which = ids.length === 0 ? 'no machine of this agent is known: use all 64 characters' : `known: ${ids.join(', ')}`
  const why =
    first === undefined
      ? `matches no machine of this agent; use its name or at least ${MIN_ID_PREFIX} characters of its ID`
      : 'could be several'
  throw new AppError('bad_request', `machine: ${JSON.stringify(text)} ${why}; ${which}`)
}
