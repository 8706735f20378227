/** Room for one more, where `own` of `all` are one source's: at most half of what is left besides, so that no few of them take all. */
export const hasShare = (own: number, all: number, max: number): boolean => all < max && own <= (max - all) / 2

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
