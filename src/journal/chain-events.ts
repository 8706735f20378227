import type { AgentId } from '../protocol/ids.ts'

/** Names one line of a journal for good. */
export interface LineRef {
  readonly chain: string
  readonly n: number
  /** Of its bytes without the line feed; hex. */
  readonly sha256: string
}

/** Whose key signs. */
export interface JournalSigner {
  readonly agent_id: AgentId
  /** ML-DSA-65, base64. */
  readonly public_key: string
}

/** The first line of each life, which is one chain: what begins, and behind which line it found itself. */
export interface BeganEvent {
  readonly event: 'began'
  /** Of the program. */
  readonly version: string
  /** SHA-256, hex, of the ACL file, or of REXD's configuration, as it is in force; null where there is none. */
  readonly policy_sha256: string | null
  /** Null: this journal has no key, and nothing in it is signed. */
  readonly signer: JournalSigner | null
  /** The journal's last whole line before this one, in its file or in the one rotated away last; null: there was none. */
  readonly after: LineRef | null
}

/** `head`: all up to here is signed. `stopped`: the same, and the last line of a life that ended in good order. */
export interface SealEvent {
  readonly event: 'head' | 'stopped'
  /** Said once in each file: where a file begins in the middle of a life, `began` stands in another. */
  readonly signer: JournalSigner | null
  /** Of the line as it stands with null here, in the domain JOURNAL_HEAD_DOMAIN; base64. */
  readonly signature: string | null
}

/** What the journal says of itself. */
export type ChainEvent = BeganEvent | SealEvent

export const LIFE_EVENTS = ['began', 'head', 'stopped'] as const satisfies readonly ChainEvent['event'][]
