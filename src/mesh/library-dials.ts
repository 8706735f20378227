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

/** Addresses that the hash table dials a minute, of machines of each kind: a look-up asks some tens of servers, and any of them may name any number of machines at any addresses … */
export const ENGINE_ADDRESSES_PER_MINUTE = 240
/** … of these so many that one server has named: three that are hostile use up what there is for the named ones … */
export const ENGINE_ADDRESSES_OF_SERVER = 80
/** … each machine so often: one that hangs up whenever it is reached would be dialled again at once, and take the turns of all … */
export const ENGINE_DIALS_OF_MACHINE = 4
/** … so many machines of each kind at once, since an address that is made up need not answer … */
export const ENGINE_DIALS_AT_ONCE = 3
/** … and whose connections stay, of all strangers that were dialled: a quarter of strangers' places. */
export const MAX_ENGINE_UNLISTED = 128
/** Machines of which it is remembered where a server has said that they are; of more, the server that named most loses its oldest. */
const MAX_NAMED_REMEMBERED = 1_024

export interface EngineDialsComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  isKnown(machineId: MachineId): boolean
  /** Where a machine that we know says that it is, or our own files do. */
  addressesOf(machineId: MachineId): readonly string[]
  /** By what meters count a machine; null for one that is not connected. */
  sourceOf(machineId: MachineId): string | null
  /** A dial that gives way to those that are awaited. */
  dial(machineId: MachineId, addresses: readonly string[], signal: AbortSignal): Promise<unknown>
  /** A machine that we know has connected and keeps records for others. */
  onServer(): void
  /** Strangers to whom a connection stands that this side has dialled. */
  strangersDialled(): number
}

/** What a server has said of a stranger. */
interface Named {
  readonly addresses: readonly string[]
  /** Of the server. */
  readonly source: string
}

/** Machines that we know; others that were connected, and said themselves where they are; and those of which only a server has said so. */
type Kind = 'known' | 'seen' | 'named'

/**
 * What the hash table dials of itself: whom its servers name. A machine that we know only where it says itself that it is, or our own
 * files do. A stranger also where a server says so, so that a server can have us knock at any host: so often, and not where strangers
 * may not come. libp2p's other services dial for machines that we know alone, and dials of ours have bounds of their own (`Dialler`).
 */
export class EngineDials implements DhtDialer {
  readonly #parts: EngineDialsComponents
  readonly #strangers: boolean
  readonly #addresses: RateLimit
  readonly #ofServer: RateLimit
  readonly #ofMachine: RateLimit
  /** Of each kind, so that who makes up addresses keeps nobody waiting who is there. */
  readonly #turns: Readonly<Record<Kind, Semaphore>>
  readonly #named = new BoundedMap<MachineId, Named>({ max: MAX_NAMED_REMEMBERED })
  /** How often each is being dialled by us. */
  readonly #ours = new Map<MachineId, number>()

  constructor(components: EngineDialsComponents, init: { strangers: boolean }) {
    this.#parts = components
    this.#strangers = init.strangers
    this.#addresses = new RateLimit(components, perMinute(ENGINE_ADDRESSES_PER_MINUTE))
    this.#ofServer = new RateLimit(components, perMinute(ENGINE_ADDRESSES_OF_SERVER))
    this.#ofMachine = new RateLimit(components, perMinute(ENGINE_DIALS_OF_MACHINE))
    const turns = (): Semaphore => new Semaphore({ limit: ENGINE_DIALS_AT_ONCE })
    this.#turns = { known: turns(), seen: turns(), named: turns() }
  }

  /** A dial of ours, which `may` lets pass while it lasts. */
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
    return this.#ours.has(machineId) || this.#parts.isKnown(machineId)
  }

  /** A server has said where a machine is; of a machine that we know that is nothing to us. */
  named(machineId: MachineId, addresses: readonly string[], server: MachineId): void {
    const source = this.#parts.sourceOf(server)
    if (source !== null && !this.#parts.isKnown(machineId)) this.#named.set(machineId, { addresses, source }, source)
  }

  /** Connects to a machine that is at `own` by its own words. Throws `rate_limited` where it may not be dialled now, `peer_unreachable`, `conflict` where it gives way, or the signal's reason. */
  async reach(machineId: MachineId, own: readonly string[], signal: AbortSignal): Promise<void> {
    const { isKnown, addressesOf, dial } = this.#parts
    const kind = isKnown(machineId) ? 'known' : own.length > 0 ? 'seen' : 'named'
    await this.#turns[kind].use(signal, async () => {
      const named = kind === 'named' ? this.#named.get(machineId) : undefined
      const all = kind === 'known' ? [...own, ...addressesOf(machineId)] : (named?.addresses ?? own)
      // What a relay carries is limited, and libp2p opens no stream of the table there.
      const addresses = [...new Set(all)].filter((text) => relayOfText(text) === null).slice(0, MAX_DIAL_ADDRESSES)
      if (addresses.length === 0) throw new AppError('peer_unreachable', 'nobody has said where it is')
      if (!this.#mayReach(machineId, kind, addresses.length, named)) throw new AppError('rate_limited', 'not dialled for the hash table')
      await dial(machineId, addresses, signal)
    })
  }

  met(machineId: MachineId): void {
    if (this.#parts.isKnown(machineId)) this.#parts.onServer()
  }

  #mayReach(machineId: MachineId, kind: Kind, addresses: number, named: Named | undefined): boolean {
    if (kind !== 'known' && (!this.#strangers || this.#parts.strangersDialled() >= MAX_ENGINE_UNLISTED)) return false
    if (!this.#ofMachine.allows(machineId)) return false
    return (named === undefined || this.#ofServer.allows(named.source, addresses)) && this.#addresses.allows(kind, addresses)
  }
}
