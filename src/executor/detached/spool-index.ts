import { keptBefore, SPOOL_START, type SpoolPlace } from './spool-format.ts'

/** Places are remembered this far apart, so that who attaches late need not read all that is before. */
const INDEX_EVERY = 256 * 1024

/** Where pieces of one spool begin, as whoever writes or reads it comes by. */
export class SpoolIndex {
  readonly #places: SpoolPlace[] = [SPOOL_START]

  note(place: SpoolPlace): void {
    if (place.file - this.#places.at(-1)!.file >= INDEX_EVERY) this.#places.push(place)
  }

  /** The last known place that has at most so many bytes of output before it. */
  before(kept: number): SpoolPlace {
    return this.#places.findLast((place) => keptBefore(place) <= kept) ?? SPOOL_START
  }
}
