import type { MachineId } from '../protocol/ids.ts'

/**
 * Of the machines of all accepted contacts those to which a connection stands: all of them while they are few, else the ones at
 * 1, 2, 4, 8 … places to both sides of ours on the ring of their ids: some twice the logarithm of their number. Who has the
 * same contacts comes to the same pairs, so each connection serves both ends; the nearest alone make a ring, so that gossip reaches everybody.
 */
export const standingAmong = (self: MachineId, machines: readonly MachineId[], most: number): MachineId[] => {
  const others = [...new Set(machines)].filter((one) => one !== self)
  if (others.length <= most) return others
  const ring = [...others, self].toSorted()
  const at = ring.indexOf(self)
  const chosen = new Set<MachineId>()
  for (let step = 1; step <= ring.length / 2; step *= 2)
    for (const place of [at + step, at - step]) if (chosen.size < most) chosen.add(ring.at(place % ring.length)!)
  return [...chosen]
}
