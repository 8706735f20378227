import type { MachineId } from '../protocol/ids.ts'
import type { TrustCause, TrustDecision } from '../protocol/reasons.ts'
import type { Contact } from './contact.ts'

export interface TrustQuestion {
  /** Null: the agent is no contact. */
  readonly contact: Pick<Contact, 'trust' | 'machines'> | null
  /** The machine as the connection itself proved it. */
  readonly machineId: MachineId
  /** The agent has revoked its key, or its presence on this machine. */
  readonly revoked: boolean
}

export interface TrustVerdict {
  readonly decision: TrustDecision
  readonly cause: TrustCause
}

/** What the trust rules say of one (agent, machine), and which of them says it. Total and without side effects; only `accept` lets a command run. */
export const judgeTrust = ({ contact, machineId, revoked }: TrustQuestion): TrustVerdict => {
  if (revoked) return { decision: 'reject_revoked', cause: 'revoked' }
  if (contact === null) return { decision: 'unknown', cause: 'no_contact' }
  const { trust, machines } = contact
  if (trust === 'blocked') return { decision: 'reject_blocked', cause: 'blocked' }
  const pinned = machines.includes(machineId)
  if (machines.length > 0 && !pinned) return { decision: 'reject_machine_mismatch', cause: 'pinned_elsewhere' }
  switch (trust) {
    case 'trusted':
      return { decision: 'accept', cause: pinned ? 'trusted_and_pinned' : 'trusted' }
    case 'known':
      return pinned ? { decision: 'accept', cause: 'known_and_pinned' } : { decision: 'accept_with_flag', cause: 'known' }
    case 'unknown':
      return { decision: 'unknown', cause: 'level_unknown' }
  }
}

export const decideTrust = (question: TrustQuestion): TrustDecision => judgeTrust(question).decision
