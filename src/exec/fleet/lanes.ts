import { Turnstile } from '../../base/turnstile.ts'
import { MAX_FANOUT_DIALS, MAX_FANOUT_SIGNING } from '../../protocol/fanout-limits.ts'

/** Of what everybody shares, the parts that runs of fan-outs may use at once: they queue here, among themselves, and nobody else stands behind them. */
export class FanoutLanes {
  readonly dials = new Turnstile({ limit: MAX_FANOUT_DIALS })
  readonly signing = new Turnstile({ limit: MAX_FANOUT_SIGNING })
}

/** Does the work in a place of its lane; null: it needs none. */
export const inLane = async <T>(lane: Turnstile | null, signal: AbortSignal, work: () => Promise<T>): Promise<T> =>
  lane === null ? work() : lane.within(signal, work)
