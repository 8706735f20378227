import { AppError } from '../../base/errors.ts'
import type { Metered } from '../../protocol/meter-limits.ts'

/** Data is metered in portions: to ask for each frame would cost a run with much output more than it must. */
const METER_EVERY_BYTES = 256 * 1024
const METER_EVERY_FRAMES = 64

/** Of what is metered, what a muxer sees. */
const KINDS = ['bytes', 'frames', 'pings', 'streams', 'resets'] as const satisfies readonly Metered[]

/** What a connection has received. */
export type Traffic = { [K in (typeof KINDS)[number]]: number }

export const noTraffic = (): Traffic => ({ bytes: 0, frames: 0, pings: 0, streams: 0, resets: 0 })

/** Counts what one connection sends us and asks `charge` about it before the muxer gets it: about each frame that opens or resets a stream or pings, about data a few frames at a time. */
export class TrafficMeter {
  /** Since the connection began. */
  readonly total = noTraffic()
  #unasked = noTraffic()
  #charge: ((traffic: Traffic) => boolean) | null = null

  /** From now on `charge` is asked about everything that comes, and at once about what came before. It answers false for a connection that it has aborted. */
  set charge(charge: (traffic: Traffic) => boolean) {
    this.#charge = charge
    this.#ask()
  }

  /** Throws `rate_limited`. */
  note(traffic: Traffic): void {
    for (const what of KINDS) {
      this.total[what] += traffic[what]
      this.#unasked[what] += traffic[what]
    }
    const { bytes, frames, pings, streams, resets } = this.#unasked
    if (pings + streams + resets === 0 && bytes < METER_EVERY_BYTES && frames < METER_EVERY_FRAMES) return
    if (!this.#ask()) throw new AppError('rate_limited', 'more than a peer of this standing may send')
  }

  #ask(): boolean {
    if (this.#charge === null) return true
    const asked = this.#unasked
    this.#unasked = noTraffic()
    return this.#charge(asked)
  }
}
