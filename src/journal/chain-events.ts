import type { AgentId } from '../protocol/ids.ts'

/** Identifies one line of a journal. */
export interface LineRef {
  readonly chain: string
  readonly n: number
  /** SHA-256 of its bytes without the line feed, hex. */
  readonly sha256: string
}

export interface JournalSigner {
  readonly agent_id: AgentId
  /** ML-DSA-65, base64. */
  readonly public_key: string
}

/** First line of each chain, which one writing process makes, with the line before it. */
export interface BeganEvent {
  readonly event: 'began'
  /** Version of the program. */
  readonly version: string
  /** SHA-256 of the ACL or REXD configuration in force, hex, or null without one. */
  readonly policy_sha256: string | null
  /** Null means that this journal has no key, and nothing in it is signed. */
  readonly signer: JournalSigner | null
  /** The journal's last complete line before this one, in its file or in the last rotated one, or null if there was none. */
  readonly after: LineRef | null
}

/** `head`: all lines up to this one are signed. `stopped`: the same, as the last line of a writer that stopped regularly. */
export interface SealEvent {
  readonly event: 'head' | 'stopped'
  /** Stated once in each file, because the `began` line of a chain may be in another file. */
  readonly signer: JournalSigner | null
  /** Signature over the line with null in this place, in the domain JOURNAL_HEAD_DOMAIN; base64. */
  readonly signature: string | null
}

/** Events about the journal itself. */
export type ChainEvent = BeganEvent | SealEvent

export const LIFE_EVENTS = ['began', 'head', 'stopped'] as const satisfies readonly ChainEvent['event'][]
