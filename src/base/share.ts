/**
 * Whether a source that holds `own` of `all` places may take `more`. It holds at most half of the free places, so its share falls
 * as they fill. Each source gets its first `least` places, also where other sources hold all: use that only where sources are listed.
 */
export const hasShare = (own: number, all: number, max: number, { least = 0, more = 1 } = {}): boolean =>
  own + more <= least || (all + more <= max && own <= (max - all) / 2)

/** What must go of items that are `max` at most, the oldest first: of whoever has most the oldest, so that nobody's many push out another's few. */
export const surplusOf = <T>(items: readonly T[], ownerOf: (item: T) => string, max: number): T[] => {
  const bySize = [...Map.groupBy(items, ownerOf).values()].toSorted((one, other) => one.length - other.length)
  let room = max
  return bySize.flatMap((own, at) => {
    const kept = Math.min(own.length, Math.floor(room / (bySize.length - at)))
    room -= kept
    return own.slice(0, own.length - kept)
  })
}
