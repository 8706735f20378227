import type { AgentId } from '../../protocol/ids.ts'

/** The request ids that were used, by their pairs. Beyond `max` the oldest of whoever has most give way: nobody makes those of others be forgotten. */
export class UsedIds {
  readonly #max: number
  /** Of each agent, the oldest first; who has used one last is the last. */
  readonly #names = new Map<AgentId, Set<string>>()
  #size = 0

  constructor(init: { readonly max: number }) {
    this.#max = init.max
  }

  has(agentId: AgentId, name: string): boolean {
    return this.#names.get(agentId)?.has(name) ?? false
  }

  /** What is added again is the newest. */
  add(agentId: AgentId, name: string): void {
    const own = this.#names.get(agentId) ?? new Set()
    this.#names.delete(agentId)
    this.#names.set(agentId, own)
    if (!own.delete(name)) this.#size += 1
    own.add(name)
    if (this.#size > this.#max) this.#makeRoom()
  }

  delete(agentId: AgentId, name: string): void {
    const own = this.#names.get(agentId)
    if (own?.delete(name) !== true) return
    this.#size -= 1
    if (own.size === 0) this.#names.delete(agentId)
  }

  #makeRoom(): void {
    let [most] = this.#names
    for (const one of this.#names) if (one[1].size > most![1].size) most = one
    const [agentId, names] = most!
    const [oldest] = names
    names.delete(oldest!)
    if (names.size === 0) this.#names.delete(agentId)
    this.#size -= 1
  }
}
