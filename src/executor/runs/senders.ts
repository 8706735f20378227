import { BoundedMap } from '../../base/bounded.ts'
import type { ExecCounters } from '../../diagnostics/exec-counters.ts'
import type { AgentId } from '../../protocol/ids.ts'
import { MAX_RECENT_RUNS } from '../../protocol/limits.ts'
import { senderProblem, type Arrival, type VerifyContext } from './arrival.ts'

/** What keeps a sender from being believed, as the journal says it. */
export const SENDER_PROBLEMS = {
  replayed: 'the nonce of its stream was used before, or never given out, or another one was signed',
  reused: 'this agent and machine used the request id before',
  wrong_party: 'it names other parties than those of the link',
  wrong_signature: 'its signature does not fit',
} as const

/** The id of what is asked. */
export interface SentId {
  /** With its pair. */
  readonly name: string
  readonly trusted: boolean
  /** A run of it is known. */
  readonly isTaken: boolean
  /** It is about a run of its own that is there. */
  readonly mayRepeat?: boolean
}

const keyOf = (agentId: AgentId, name: string): string => `${agentId} ${name}`

/** Who asks, and whether each id is used once. */
export class Senders {
  readonly #counters: ExecCounters
  readonly #own: VerifyContext['own']
  /** The ids of runs that each pair has begun, before this start too. A denial before a process began frees its id. Old ones are forgotten: a replay fails on its nonce already. */
  readonly #used = new BoundedMap<string, true>({ max: MAX_RECENT_RUNS })

  constructor(components: { readonly counters: ExecCounters }, init: VerifyContext['own']) {
    this.#counters = components.counters
    this.#own = init
  }

  /** One id never means two runs: from now on it is used. */
  use(agentId: AgentId, name: string): void {
    this.#used.set(keyOf(agentId, name), true, agentId)
  }

  /** Its run was denied before a process began. */
  release(agentId: AgentId, name: string): void {
    this.#used.delete(keyOf(agentId, name))
  }

  hasUsed(agentId: AgentId, name: string): boolean {
    return this.#used.has(keyOf(agentId, name))
  }

  problemOf(
    read: Arrival,
    { link, nonces, streamNonce }: Omit<VerifyContext, 'own'>,
    { name, trusted, isTaken, mayRepeat = false }: SentId,
  ): keyof typeof SENDER_PROBLEMS | null {
    const problem = senderProblem(read, { link, nonces, streamNonce, own: this.#own })
    // Ids of untrusted requesters are not remembered: they could push out those of trusted ones.
    const reused = problem === null && trusted && !mayRepeat && (isTaken || this.hasUsed(link.agentId, name))
    const found = reused ? 'reused' : problem
    if (found === 'replayed' || found === 'reused') this.#counters.count('requests_replayed')
    return found
  }
}
