import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { RateLimit } from '../base/rate-limit.ts'
import { Semaphore } from '../base/semaphore.ts'
import type { MachineId } from '../protocol/ids.ts'
import { perMinute } from '../protocol/limits/mesh.ts'
import { MAX_DIAL_ADDRESSES } from '../protocol/limits/wire.ts'
import { relayOfText } from './addresses.ts'
import type { DhtDialer } from './libp2p/dht-dialer.ts'

/** Addresses per minute that the DHT dials, by kind of machine. A lookup asks some tens of servers, and each may name any number of machines and addresses. */
export const ENGINE_ADDRESSES_PER_MINUTE = 240
/** Addresses per minute that one server named. Three hostile servers can use up the limit of the named kind. */
export const ENGINE_ADDRESSES_OF_SERVER = 80
/** Dials per minute of one machine. Without it, a machine that hangs up at once would be dialled again and again. */
export const ENGINE_DIALS_OF_MACHINE = 4
/** Machines of each kind that are dialled at once, because an invented address may never answer. */
export const ENGINE_DIALS_AT_ONCE = 3
/** Connections to unlisted machines that were dialled, a quarter of the unlisted slots. */
export const MAX_ENGINE_UNLISTED = 128
/** Machines whose addresses from servers are remembered. If there are more, the server that named most loses its oldest. */
const MAX_NAMED_REMEMBERED = 1_024

interface EngineDialsDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  isKnown(machineId: MachineId): boolean
  /** Addresses of a known machine from presences, cards and configuration. */
  addressesOf(machineId: MachineId): readonly string[]
  /** The source by which rate limits count a machine, or null if it is not connected. */
  sourceOf(machineId: MachineId): string | null
  /** Dials in the background, see `DialPrecedence`. */
  dial(machineId: MachineId, addresses: readonly string[], signal: AbortSignal): Promise<unknown>
  /** A known machine has connected that is a DHT server. */
  onServer(): void
  /** Number of unlisted machines to which this side dialled the connection. */
  unlistedDialled(): number
}

/** Addresses of an unlisted machine, as a server named them. */
interface Named {
  readonly addresses: readonly string[]
  /** Source of the server. */
  readonly source: string
}

/** Machines that are `known`, unlisted ones that were connected and gave their addresses, and those that only a server named. */
type Kind = 'known' | 'seen' | 'named'

/**
 * Limits the dials of the DHT to the machines that its servers name. A known machine is dialled only at addresses that it or the
 * configuration gave. An unlisted one is dialled also at addresses from servers, so a server can cause dials of any host. The rate limits
 * bound that, and it is off if unlisted machines may not connect. Other libp2p services dial only known machines. `Dialler` has separate
 * limits for this daemon's own dials.
 */
export class EngineDials implements DhtDialer {
  readonly #deps: EngineDialsDeps
  readonly #acceptsUnlisted: boolean
  readonly #addresses: RateLimit
  readonly #ofServer: RateLimit
  readonly #ofMachine: RateLimit
  /** By kind, so that invented addresses do not delay reachable machines. */
  readonly #turns: Readonly<Record<Kind, Semaphore>>
  readonly #named = new BoundedMap<MachineId, Named>({ max: MAX_NAMED_REMEMBERED })
  /** Number of this daemon's own dials of each machine under way. */
  readonly #ours = new Map<MachineId, number>()

  constructor(deps: EngineDialsDeps, init: { acceptsUnlisted: boolean }) {
    this.#deps = deps
    this.#acceptsUnlisted = init.acceptsUnlisted
    this.#addresses = new RateLimit(deps, perMinute(ENGINE_ADDRESSES_PER_MINUTE))
    this.#ofServer = new RateLimit(deps, perMinute(ENGINE_ADDRESSES_OF_SERVER))
    this.#ofMachine = new RateLimit(deps, perMinute(ENGINE_DIALS_OF_MACHINE))
    const turns = (): Semaphore => new Semaphore({ limit: ENGINE_DIALS_AT_ONCE })
    this.#turns = { known: turns(), seen: turns(), named: turns() }
  }

  /** Runs a dial of this daemon, which `may` allows meanwhile. */
  async ours<T>(machineId: MachineId, dial: () => Promise<T>): Promise<T> {
    this.#ours.set(machineId, (this.#ours.get(machineId) ?? 0) + 1)
    try {
      return await dial()
    } finally {
      const left = this.#ours.get(machineId)! - 1
      if (left === 0) this.#ours.delete(machineId)
      else this.#ours.set(machineId, left)
    }
  }

  /** Whether libp2p may dial this machine now. */
  may(machineId: MachineId): boolean {
    return this.#ours.has(machineId) || this.#deps.isKnown(machineId)
  }

  /** A server has named the addresses of a machine. Those of a known machine are ignored. */
  named(machineId: MachineId, addresses: readonly string[], server: MachineId): void {
    const source = this.#deps.sourceOf(server)
    if (source !== null && !this.#deps.isKnown(machineId)) this.#named.set(machineId, { addresses, source }, source)
  }

  /**
   * Connects to a machine. `own` are the addresses that it gave itself. Throws `rate_limited` if it may not be dialled now,
   * `peer_unreachable`, `conflict` if the dial had to yield, or the signal's reason.
   */
  async reach(machineId: MachineId, own: readonly string[], signal: AbortSignal): Promise<void> {
    const { isKnown, addressesOf, dial } = this.#deps
    const kind = isKnown(machineId) ? 'known' : own.length > 0 ? 'seen' : 'named'
    await this.#turns[kind].use(signal, async () => {
      const named = kind === 'named' ? this.#named.get(machineId) : undefined
      const all = kind === 'known' ? [...own, ...addressesOf(machineId)] : (named?.addresses ?? own)
      // Connections through a relay are limited, and libp2p opens no DHT stream on them.
      const addresses = [...new Set(all)].filter((text) => relayOfText(text) === null).slice(0, MAX_DIAL_ADDRESSES)
      if (addresses.length === 0) throw new AppError('peer_unreachable', 'no address is known')
      if (!this.#mayReach(machineId, kind, addresses.length, named)) throw new AppError('rate_limited', 'not dialled for the DHT')
      await dial(machineId, addresses, signal)
    })
  }

  met(machineId: MachineId): void {
    if (this.#deps.isKnown(machineId)) this.#deps.onServer()
  }

  #mayReach(machineId: MachineId, kind: Kind, addresses: number, named: Named | undefined): boolean {
    if (kind !== 'known' && (!this.#acceptsUnlisted || this.#deps.unlistedDialled() >= MAX_ENGINE_UNLISTED)) return false
    if (!this.#ofMachine.allows(machineId)) return false
    return (named === undefined || this.#ofServer.allows(named.source, addresses)) && this.#addresses.allows(kind, addresses)
  }
}
