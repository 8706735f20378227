import type { Clock } from '../base/clock.ts'
import { RateLimit } from '../base/rate-limit.ts'
import type { MachineId } from '../protocol/ids.ts'
import { perMinute } from '../protocol/meter-limits.ts'

/** Strangers that the hash table dials a minute: a look-up asks some tens of servers, and any of them may name any number of machines at any addresses … */
export const ENGINE_DIALS_PER_MINUTE = 60
/** … each of them so often: one that hangs up whenever it is reached would be dialled again at once, and take the turns of all … */
export const ENGINE_DIALS_OF_MACHINE = 4
/** … and whose connections stay, of all strangers that were dialled: a quarter of strangers' places. */
export const MAX_ENGINE_STRANGERS = 128

export interface EngineDialsComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  isKnown(machineId: MachineId): boolean
  /** Strangers to whom a connection stands that this side has dialled. */
  strangersDialled(): number
}

/** All strangers are one source. */
const STRANGERS = ''

/**
 * What libp2p's services dial of themselves, above all the hash table, which dials whom its servers name. Dials of ours have
 * bounds of their own (`Dialler`), those of machines that we know need none; of strangers so many are dialled, and none where strangers may not come.
 */
export class EngineDials {
  readonly #parts: EngineDialsComponents
  readonly #strangers: boolean
  readonly #admitted: RateLimit
  readonly #ofMachine: RateLimit
  /** How often each is being dialled by us. */
  readonly #ours = new Map<MachineId, number>()

  constructor(components: EngineDialsComponents, init: { strangers: boolean }) {
    this.#parts = components
    this.#strangers = init.strangers
    this.#admitted = new RateLimit(components, perMinute(ENGINE_DIALS_PER_MINUTE))
    this.#ofMachine = new RateLimit(components, perMinute(ENGINE_DIALS_OF_MACHINE))
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

  /** Whether this machine may be dialled now. */
  may(machineId: MachineId): boolean {
    if (this.#ours.has(machineId) || this.#parts.isKnown(machineId)) return true
    if (!this.#strangers || this.#parts.strangersDialled() >= MAX_ENGINE_STRANGERS) return false
    return this.#ofMachine.allows(machineId) && this.#admitted.allows(STRANGERS)
  }
}
