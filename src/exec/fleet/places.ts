import type { Clock } from '../../base/clock.ts'
import { Waiters } from '../../base/waiters.ts'
import { FANOUT_LEAST_RUNS, MAX_FANOUTS, MAX_FANOUT_RUNS } from '../../protocol/fanout-limits.ts'
import type { Places } from './fanout.ts'

/** What all that may go on need to have their least: who has its least takes none of these. */
const KEPT_FREE = MAX_FANOUTS * FANOUT_LEAST_RUNS

/**
 * Places of the runs of all fan-outs. One whose reader pauses keeps its places for as long as it likes: so each takes its next only while more
 * are free than it has, and whoever comes later finds as many as the one before it took, or its least.
 */
export class FanoutPlaces {
  readonly #clock: Clock
  readonly #fewer = new Waiters()
  #free = MAX_FANOUT_RUNS

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  /** Of one fan-out; of at most `MAX_FANOUTS` at once. */
  share(): Places {
    let mine = 0
    const leave = (): void => {
      mine -= 1
      this.#free += 1
      this.#fewer.wake()
    }
    const mayEnter = (): boolean => mine < FANOUT_LEAST_RUNS || this.#free > Math.max(mine, KEPT_FREE)
    const enter = async (signal: AbortSignal): Promise<() => void> => {
      signal.throwIfAborted()
      while (!mayEnter()) {
        await this.#fewer.wait({ clock: this.#clock, timeoutMs: null, signal })
        signal.throwIfAborted()
      }
      mine += 1
      this.#free -= 1
      return leave
    }
    return { enter }
  }
}
