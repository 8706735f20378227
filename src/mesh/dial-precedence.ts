import { unlessAborted } from '../base/abortable.ts'
import { AppError } from '../base/errors.ts'
import type { MachineId } from '../protocol/ids.ts'

interface Dials {
  awaited: number
  /** Each with what ends it. */
  readonly background: Map<AbortController, Promise<unknown>>
}

/**
 * libp2p makes one of all dials of a machine that go on at once. A run that comes back within its lease would wait there for an
 * address that never answers, for as long as whoever keeps connections can. So a dial for which nobody waits gives way: it
 * does not begin beside another one of its machine, and ends when such a one begins.
 */
export class DialPrecedence {
  readonly #dials = new Map<MachineId, Dials>()

  /** Throws the signal's reason where that is aborted before what gives way has ended. */
  async awaited<T>(machineId: MachineId, signal: AbortSignal, dial: () => Promise<T>): Promise<T> {
    return this.#within(machineId, async (dials) => {
      dials.awaited += 1
      try {
        for (const given of dials.background.keys()) given.abort(gaveWay())
        await unlessAborted(Promise.allSettled(dials.background.values()), signal)
        return await dial()
      } finally {
        dials.awaited -= 1
      }
    })
  }

  /** Throws `conflict` where it gives way. */
  async background<T>(machineId: MachineId, dial: (given: AbortSignal) => Promise<T>): Promise<T> {
    return this.#within(machineId, async ({ awaited, background }) => {
      if (awaited > 0) throw gaveWay()
      const given = new AbortController()
      const dialled = dial(given.signal)
      background.set(given, dialled)
      try {
        return await dialled
      } finally {
        background.delete(given)
      }
    })
  }

  async #within<T>(machineId: MachineId, work: (dials: Dials) => Promise<T>): Promise<T> {
    const dials: Dials = this.#dials.get(machineId) ?? { awaited: 0, background: new Map() }
    this.#dials.set(machineId, dials)
    try {
      return await work(dials)
    } finally {
      if (dials.awaited === 0 && dials.background.size === 0) this.#dials.delete(machineId)
    }
  }
}

const gaveWay = (): AppError => new AppError('conflict', 'it is dialled for somebody who waits')
