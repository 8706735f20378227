import type { MachineId } from '../protocol/ids.ts'
import type { TrustDecision } from '../protocol/reasons.ts'
import type { Contact } from './contact.ts'

export interface TrustQuestion {
  /** Null: the agent is no contact. */
  readonly contact: Pick<Contact, 'trust' | 'machines'> | null
  /** The machine as the connection itself proved it. */
  readonly machineId: MachineId
  /** The agent has revoked its key, or its presence on this machine. */
  readonly revoked: boolean
}

/** What the trust rules say of one (agent, machine). Total and without side effects; only `accept` lets a command run. */
export const decideTrust = ({ contact, machineId, revoked }: TrustQuestion): TrustDecision => {
  if (revoked) return 'reject_revoked'
  if (contact === null) return 'unknown'
  const { trust, machines } = contact
  if (trust === 'blocked') return 'reject_blocked'
  const pinned = machines.includes(machineId)
  if (machines.length > 0 && !pinned) return 'reject_machine_mismatch'
  switch (trust) {
    case 'trusted':
      return 'accept'
    case 'known':
      return pinned ? 'accept' : 'accept_with_flag'
    case 'unknown':
      return 'unknown'
  }
}
