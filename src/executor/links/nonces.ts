import { BoundedMap, BoundedSet } from '../../base/bounded-collections.ts'
import { equalBytes, randomBytes } from '../../identity/hash.ts'
import { type AgentId, toHex } from '../../protocol/ids.ts'
import { MAX_NONCES_PER_PEER, NONCE_BYTES } from '../../protocol/limits/wire.ts'

/**
 * Pairs whose void nonces are remembered (128 each, 8 MiB in all), to prove that a Request never arrived. Above that, the agent with most
 * pairs loses its oldest.
 */
export const MAX_PAIRS_WITH_VOID_NONCES = 512

/** The first bytes of all nonces of one executor process. The other 24 are random for each. */
const LIFE_BYTES = 8
export const newLife = (): Uint8Array => randomBytes(LIFE_BYTES)

const agentOfPair = (pair: string): AgentId => pair.split(':')[0]!

/**
 * Stream nonces that were issued and not used. Each belongs to one pair of agent and machine and is valid for one request. They are only in
 * memory, so a restart rejects all earlier Requests.
 */
export class Nonces {
  readonly #life: Uint8Array
  readonly #byPair = new Map<string, BoundedSet<string>>()
  /** Nonces that became void unused: nothing signed with one was or will be accepted. The newest pairs come last. */
  readonly #void = new BoundedMap<string, ReadonlySet<string>>({ max: MAX_PAIRS_WITH_VOID_NONCES })

  /** `life` is that of the executor process. */
  constructor({ life }: { readonly life: Uint8Array }) {
    this.#life = life
  }

  /** A new nonce that is not issued yet. */
  make(): Uint8Array {
    return Buffer.concat([this.#life, randomBytes(NONCE_BYTES - this.#life.length)])
  }

  /** Whether this executor process cannot have made the nonce, so that it is not valid and never will be. */
  isOfOther(nonce: Uint8Array): boolean {
    return !equalBytes(nonce.subarray(0, this.#life.length), this.#life)
  }

  /** Issues nonces for a pair. Above the limit, the oldest nonces of that pair become void. */
  mint(pair: string, count: number): Uint8Array[] {
    return Array.from({ length: count }, () => {
      const nonce = this.make()
      this.add(pair, nonce)
      return nonce
    })
  }

  /** Adds the nonce of a handshake, which is also that of its stream. */
  add(pair: string, nonce: Uint8Array): void {
    const nonces = this.#byPair.get(pair) ?? new BoundedSet({ max: MAX_NONCES_PER_PEER })
    this.#byPair.set(pair, nonces)
    nonces.add(toHex(nonce))
  }

  /** Returns true once for each nonce of this pair. */
  consume(pair: string, nonce: Uint8Array): boolean {
    return this.#byPair.get(pair)?.delete(toHex(nonce)) ?? false
  }

  /** Makes a nonce void. True if it was issued to this pair and never used, so nothing signed with it was accepted. */
  void(pair: string, nonce: Uint8Array): boolean {
    if (this.consume(pair, nonce)) this.#remember(pair, [toHex(nonce)])
    return this.#void.get(pair)?.has(toHex(nonce)) ?? false
  }

  /** Called when the pair has no link: all its nonces become void. They are remembered if the pair may run commands. */
  forget(pair: string, remembered: boolean): void {
    if (remembered) this.#remember(pair, this.#byPair.get(pair) ?? [])
    this.#byPair.delete(pair)
  }

  #remember(pair: string, nonces: Iterable<string>): void {
    const before = this.#void.get(pair) ?? []
    this.#void.set(pair, new Set([...before, ...nonces].slice(-MAX_NONCES_PER_PEER)), agentOfPair(pair))
  }
}
