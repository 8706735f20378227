import { BoundedMap } from '../../base/bounded.ts'
import type { ExecCounters } from '../../diagnostics/exec-counters.ts'
import type { AgentId } from '../../protocol/ids.ts'
import { MAX_RECENT_RUNS } from '../../protocol/limits.ts'
import { senderProblem, type Arrival, type VerifyContext } from './arrival.ts'

/** What keeps a sender from being believed, as the journal says it. */
export const SENDER_PROBLEMS = {
  replayed: 'the nonce of its stream was used before, or never given out, or another one was signed',
  wrong_party: 'it names other parties than those of the link',
  wrong_signature: 'its signature does not fit',
} as const

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

  problemOf(read: Arrival, { link, nonces, streamNonce }: Omit<VerifyContext, 'own'>): keyof typeof SENDER_PROBLEMS | null {
    const problem = senderProblem(read, { link, nonces, streamNonce, own: this.#own })
    if (problem === 'replayed') this.#counters.count('requests_replayed')
    return problem
  }
}
