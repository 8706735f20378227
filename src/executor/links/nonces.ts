import { BoundedMap, BoundedSet } from '../../base/bounded-collections.ts'
import { randomBytes } from '../../identity/hash.ts'
import { type AgentId, type MachineId, toHex } from '../../protocol/ids.ts'
import { MAX_NONCES_PER_PEER, NONCE_BYTES } from '../../protocol/limits/wire.ts'

/** Pairs of which void nonces are remembered, 128 each: then a Request that never came is known as such. 8 MiB at most; of more, the agent with most pairs loses its oldest. */
export const MAX_PAIRS_WITH_VOID_NONCES = 512

/** One (agent, machine), as a key of a map. */
export const pairKey = (agentId: AgentId, machineId: MachineId): string => `${agentId}:${machineId}`
const agentOfPair = (pair: string): AgentId => pair.split(':')[0]!

/**
 * The stream nonces we gave out and nobody has used. Kept in memory only, so that a restart refuses
 * every request signed before it; bound to one (agent, machine); good for one request.
 */
export class Nonces {
  readonly #byPair = new Map<string, BoundedSet<string>>()
  /** Nonces that were void before they were used: nothing signed with one was ever taken, nor ever will be. The newest pairs last. */
  readonly #void = new BoundedMap<string, ReadonlySet<string>>({ max: MAX_PAIRS_WITH_VOID_NONCES })

  /** Fresh nonces for a pair. Above the limit the pair's oldest are void: only its own streams suffer. */
  mint(pair: string, count: number): Uint8Array[] {
    return Array.from({ length: count }, () => {
      const nonce = randomBytes(NONCE_BYTES)
      this.add(pair, nonce)
      return nonce
    })
  }

  /** Takes in a nonce that served as a handshake's and is now also its stream's. */
  add(pair: string, nonce: Uint8Array): void {
    const nonces = this.#byPair.get(pair) ?? new BoundedSet({ max: MAX_NONCES_PER_PEER })
    this.#byPair.set(pair, nonces)
    nonces.add(toHex(nonce))
  }

  /** True once for a nonce that this pair was given. */
  consume(pair: string, nonce: Uint8Array): boolean {
    return this.#byPair.get(pair)?.delete(toHex(nonce)) ?? false
  }

  /** Makes a nonce void, and remembers it. True when nothing signed with it was ever taken: it was given to this pair, and never used. */
  void(pair: string, nonce: Uint8Array): boolean {
    if (this.consume(pair, nonce)) this.#remember(pair, [toHex(nonce)])
    return this.#void.get(pair)?.has(toHex(nonce)) ?? false
  }

  /** The pair has no link any more: everything it was given is void. Of a pair that may ask for its runs it is remembered. */
  forget(pair: string, remembered: boolean): void {
    if (remembered) this.#remember(pair, this.#byPair.get(pair) ?? [])
    this.#byPair.delete(pair)
  }

  #remember(pair: string, nonces: Iterable<string>): void {
    const before = this.#void.get(pair) ?? []
    this.#void.set(pair, new Set([...before, ...nonces].slice(-MAX_NONCES_PER_PEER)), agentOfPair(pair))
  }
}
