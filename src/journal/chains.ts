import { randomUUID } from 'node:crypto'
import type { Clock } from '../base/clock.ts'
import { VERSION } from '../base/runtime.ts'
import { agentIdOf, type AgentSigner, verifyAgent } from '../identity/signing.ts'
import type { BeganEvent, JournalSigner, LineRef, SealEvent } from './chain-events.ts'
import type { JournalLine } from './events.ts'
import { Chain, type EncodedLine, JOURNAL_HEAD_DOMAIN, type PreparedLine, prepareLine, signatureOf, withSignature } from './line.ts'
import { lastLineOf } from './read.ts'

export interface JournalPosition {
  readonly file: string
  /** From 1. */
  readonly line: number
}

/** One chain, as far as it was read. */
export interface ChainState {
  readonly id: string
  /** Its first line in these files. */
  readonly first: number
  next: number
  prev: string
  /** Number of lines in all files up to its last one. */
  at: number
  signer: JournalSigner | null
  /** Its last line covered by its own or a later chain's signature, or -1. */
  signedTo: number
  stopped: boolean
  /** The line before its first, or undefined if its first line was not read. */
  after: LineRef | null | undefined
}

export interface ChainFault {
  readonly kind: 'missing' | 'altered' | 'out_of_place' | 'head_missing' | 'signature'
  readonly message: string
}

export interface SignedThrough extends JournalPosition {
  readonly ts: string
}

/** Verifies the chains of a journal's writers as one history, with their beginnings and the lines that their signatures cover. */
export class JournalChains {
  readonly #agentIds: readonly string[] | null
  readonly #continued: boolean
  readonly #chains: ReadonlyMap<string, ChainState>
  readonly #agents = new Set<string>()
  /** The chain of each key whose line was read last. */
  readonly #newest = new Map<string, ChainState>()
  /** Each key once, for any number of chains. */
  readonly #signers = new Map<string, JournalSigner>()
  /** Chains whose beginning is not in the files and which one of `agentIds` must have signed, with the position of their first line. */
  readonly #headless = new Map<string, JournalPosition>()
  /** The chain that continues from a file before these. */
  #outside: string | null = null
  /** Place in `agentIds` of the newest signer that has begun a chain. No earlier one may sign after it. */
  #newestAgent: number
  #started = 0
  #unlinked = 0
  #through: SignedThrough | null = null

  /** `agentIds` are the accepted signers, the newest first, or null for any. `chains` is their state before each line. */
  constructor(init: { agentIds: readonly string[] | null; continued: boolean; chains: ReadonlyMap<string, ChainState> }) {
    this.#agentIds = init.agentIds
    this.#newestAgent = init.agentIds?.length ?? 0
    this.#continued = init.continued
    this.#chains = init.chains
  }

  get summary(): { lives: number; unlinked: number; agents: string[]; through: SignedThrough | null } {
    return { lives: this.#started, unlinked: this.#unlinked, agents: [...this.#agents], through: this.#through }
  }

  /** Returns the same object for the same key. */
  keep(signer: JournalSigner | null): JournalSigner | null {
    if (signer === null) return null
    const known = this.#signers.get(signer.public_key)
    if (known?.agent_id === signer.agent_id) return known
    this.#signers.set(signer.public_key, signer)
    return signer
  }

  /** Registers a chain whose first given line is not its beginning. */
  resume(chain: string, place: JournalPosition): void {
    if (this.#agentIds !== null) this.#headless.set(chain, place)
  }

  /** `read` lines were read before, `inFile` of them in this file. */
  start(chain: string, { after, signer }: BeganEvent, read: number, inFile: number): ChainFault[] {
    this.#started += 1
    const key = signer?.public_key ?? null
    const link = after === null ? this.#first(chain, key, read, inFile) : this.#link(chain, key, after)
    return [...this.#judgeSigner(signer, chain), ...link]
  }

  #first(chain: string, key: string | null, read: number, inFile: number): ChainFault[] {
    if (inFile === 0 && read > 0) this.#unlinked += 1
    return this.#between(chain, key, read - inFile)
  }

  #link(chain: string, key: string | null, { chain: before, n, sha256 }: LineRef): ChainFault[] {
    const state = this.#chains.get(before)
    if (state === undefined) return this.#linkOutside(chain, before, n)
    const there = state.next - 1
    if (there < n) return [missing(`lines ${there + 1} to ${n} of chain ${before} are missing: chain ${chain} began after them`)]
    if (there > n) return this.#between(chain, key, state.at - 1)
    if (state.prev === sha256) return this.#between(chain, key, state.at)
    return [{ kind: 'altered', message: `chain ${chain} began after a different line ${n} of chain ${before}` }]
  }

  #linkOutside(chain: string, before: string, n: number): ChainFault[] {
    if (this.#chains.size === 0) this.#outside = before
    if (this.#outside !== before) return [missing(`the chain before chain ${chain}, which is chain ${before}, is missing`)]
    const older = 'give the older file as well, if it was rotated away'
    return this.#continued
      ? []
      : [{ kind: 'head_missing', message: `chain ${chain} continues from line ${n} of chain ${before}: ${older}` }]
  }

  /**
   * Checks lines between the one that a chain names and its own first line. Other agents may write meanwhile, but not the same agent, which
   * has one daemon.
   */
  #between(chain: string, key: string | null, at: number): ChainFault[] {
    const newest = key === null ? undefined : this.#newest.get(key)
    if (newest === undefined || newest.at <= at) return []
    return [{ kind: 'out_of_place', message: `lines of chain ${newest.id} precede chain ${chain}, which does not refer to them` }]
  }

  /** `state` includes the line. */
  read(state: ChainState): void {
    if (state.signer !== null) this.#newest.set(state.signer.public_key, state)
  }

  #judgeSigner(signer: JournalSigner | null, chain: string): ChainFault[] {
    if (signer === null) return this.#agentIds === null ? [] : [unsigned(`chain ${chain} is not signed`)]
    const key = Buffer.from(signer.public_key, 'base64')
    if (agentIdOf(key) !== signer.agent_id) return [unsigned(`the key in chain ${chain} is not that of agent ${signer.agent_id}`)]
    if (this.#agentIds === null) return []
    const rank = this.#agentIds.indexOf(signer.agent_id)
    if (rank < 0) return [unsigned(`chain ${chain} is signed by agent ${signer.agent_id}`)]
    const replaced = this.#judgeAge(signer, chain)
    if (replaced.length === 0) this.#newestAgent = rank
    return replaced
  }

  #judgeAge({ agent_id }: JournalSigner, chain: string): ChainFault[] {
    const isReplaced = this.#agentIds !== null && this.#agentIds.indexOf(agent_id) > this.#newestAgent
    return isReplaced ? [unsigned(`chain ${chain} is signed by agent ${agent_id}, whose key was replaced before`)] : []
  }

  /** `state` excludes the line. */
  seal(place: JournalPosition, line: JournalLine & SealEvent, bytes: Buffer, state: ChainState): ChainFault[] {
    if (line.signer !== null) {
      const wrong = this.#judgeSigner(line.signer, line.chain)
      if (wrong.length > 0) return wrong
      if (state.signer !== null && state.signer.public_key !== line.signer.public_key)
        return [unsigned(`chain ${line.chain} changes its key`)]
      state.signer = this.keep(line.signer)
    }
    const { signer } = state
    if (line.signature === null) return signer === null ? [] : [unsigned(`line ${line.n} of chain ${line.chain} has lost its signature`)]
    // The key is stated in another file.
    if (signer === null)
      return this.#continued ? [] : [unsigned(`line ${line.n} of chain ${line.chain} has a signature, but no agent is named for it`)]
    const replaced = this.#judgeAge(signer, line.chain)
    if (replaced.length > 0) return replaced
    const signed = signatureOf(bytes)
    const key = Buffer.from(signer.public_key, 'base64')
    if (signed === null || !verifyAgent(key, JOURNAL_HEAD_DOMAIN, signed.body, signed.signature))
      return [unsigned(`the signature of line ${line.n} of chain ${line.chain} does not fit`)]
    this.#agents.add(signer.agent_id)
    this.#through = { ...place, ts: line.ts }
    state.signedTo = line.n
    return []
  }

  /**
   * Call this after the last line. A chain's signature also covers the line of an earlier chain that its `began` names. Any writer may have
   * made an unsigned chain whose beginning is missing.
   */
  finish(): { place: JournalPosition; finding: ChainFault }[] {
    for (const state of [...this.#chains.values()].toReversed()) {
      const before = state.signedTo >= 0 && state.after ? this.#chains.get(state.after.chain) : undefined
      if (before && state.after) before.signedTo = Math.max(before.signedTo, Math.min(state.after.n, before.next - 1))
    }
    return [...this.#headless].flatMap(([chain, place]) => {
      const message = `chain ${chain} begins in its middle and is not signed: if the log was rotated, name the older file too`
      return (this.#chains.get(chain)?.signedTo ?? -1) < 0 ? [{ place, finding: unsigned(message) }] : []
    })
  }
}

const missing = (message: string): ChainFault => ({ kind: 'missing', message })
const unsigned = (message: string): ChainFault => ({ kind: 'signature', message })

export interface LifeComponents {
  readonly clock: Clock
  /** Null for an unsigned journal. */
  readonly signer: AgentSigner | null
}

export interface LifeInit {
  readonly path: string
  readonly policySha256: string | null
}

/** Writes the first line, the signatures and the last line of one chain of a journal. */
export class ChainWriter {
  readonly chain = new Chain({ id: randomUUID() })
  readonly #components: LifeComponents
  readonly #init: LifeInit
  /** The signer as written in lines. Null for an unsigned journal. */
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

  /** Lines before the next ones. A new chain starts with `began`, which names the present last line of the file. */
  async opening(): Promise<PreparedLine[]> {
    if (!this.chain.isNew) return []
    const { path, policySha256 } = this.#init
    const after = await lastLineOf(path)
    const began = { event: 'began', version: VERSION, policy_sha256: policySha256, signer: this.#signer, after } as const
    return [prepareLine(began, this.#components.clock.now())]
  }

  /** The next line of the chain, signed if a key exists. Encode no other line until it is committed or dropped. */
  async seal(event: SealEvent['event'], { introduce }: { introduce: boolean }): Promise<EncodedLine> {
    const { clock, signer } = this.#components
    const prepared = prepareLine({ event, signer: introduce ? this.#signer : null, signature: null }, clock.now())
    const [line] = this.chain.encode([prepared]) as [EncodedLine]
    return signer === null ? line : withSignature(line, await signer.sign(JOURNAL_HEAD_DOMAIN, line.bytes))
  }
}
