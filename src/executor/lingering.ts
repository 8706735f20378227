import { MAX_LINGERING, MAX_LINGERING_BYTES_PER_PEER, MAX_LINGERING_PER_PEER } from '../protocol/resume-limits.ts'

/** A run that has ended and is kept until its requester has the Exit. */
export interface LingeringRun {
  readonly keptBytes: number
  forget(): void
}

/** Bounds what is kept of ended runs, for each peer and for all: the oldest are let go. */
export class Lingering {
  /** Each run with the pair that it belongs to, oldest first. */
  readonly #runs = new Map<LingeringRun, string>()

  add(pair: string, run: LingeringRun): void {
    this.#runs.set(run, pair)
    const own = [...this.#runs].flatMap(([one, owner]) => (owner === pair ? [one] : []))
    let bytes = own.reduce((sum, one) => sum + one.keptBytes, 0)
    for (let count = own.length; count > 1; count--) {
      if (count <= MAX_LINGERING_PER_PEER && bytes <= MAX_LINGERING_BYTES_PER_PEER) break
      const oldest = own[own.length - count]!
      bytes -= oldest.keptBytes
      oldest.forget()
    }
    const [first] = this.#runs.keys()
    if (this.#runs.size > MAX_LINGERING && first !== undefined) first.forget()
  }

  /** To be called by the run's owner when it is forgotten, in whatever way. */
  delete(run: LingeringRun): void {
    this.#runs.delete(run)
  }

  clear(): void {
    for (const run of this.#runs.keys()) run.forget()
  }
}
