import { randomUUID } from 'node:crypto'
import type { Clock } from '../base/clock.ts'
import { VERSION } from '../base/version.ts'
import type { AgentSigner } from '../identity/signing.ts'
import { lastLineOf } from './last-line.ts'
import type { JournalSigner, SealEvent } from './life-events.ts'
import { Chain, type EncodedLine, JOURNAL_HEAD_DOMAIN, type PreparedLine, prepareLine, withSignature } from './line.ts'

export interface LifeComponents {
  readonly clock: Clock
  /** Null: nothing is signed. */
  readonly signer: AgentSigner | null
}

export interface LifeInit {
  readonly path: string
  readonly policySha256: string | null
}

/** One life of a journal's writer, which is one chain: its first line, what seals it, and its last. */
export class Life {
  readonly chain = new Chain({ id: randomUUID() })
  readonly #components: LifeComponents
  readonly #init: LifeInit
  /** As it stands in lines; null where nothing is signed. */
  readonly #signer: JournalSigner | null

  constructor(components: LifeComponents, init: LifeInit) {
    const { signer } = components
    this.#components = components
    this.#init = init
    this.#signer = signer && { agent_id: signer.agentId, public_key: Buffer.from(signer.publicKey).toString('base64') }
  }

  get signs(): boolean {
    return this.#signer !== null
  }

  /** What must stand before the next lines: `began` before the first, which names the line that stands last in the file now. */
  async opening(): Promise<PreparedLine[]> {
    if (!this.chain.isNew) return []
    const { path, policySha256 } = this.#init
    const after = await lastLineOf(path)
    const began = { event: 'began', version: VERSION, policy_sha256: policySha256, signer: this.#signer, after } as const
    return [prepareLine(began, this.#components.clock.now())]
  }

  /** The next line of the chain, signed where there is a key. Nothing else may be encoded until it is committed or given up. */
  async seal(event: SealEvent['event'], { introduce }: { introduce: boolean }): Promise<EncodedLine> {
    const { clock, signer } = this.#components
    const prepared = prepareLine({ event, signer: introduce ? this.#signer : null, signature: null }, clock.now())
    const [line] = this.chain.encode([prepared]) as [EncodedLine]
    return signer === null ? line : withSignature(line, await signer.sign(JOURNAL_HEAD_DOMAIN, line.bytes))
  }
}
