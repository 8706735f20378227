import type { Pinged } from '../dm/pings.ts'

type Path = NonNullable<Pinged['path']>

/** How a connection leads to an agent. A daemon of the release before names no relay. */
export const wayText = ({ direct, relay }: Pick<Path, 'direct'> & Partial<Pick<Path, 'relay'>>): string => {
  if (direct) return 'direct'
  return relay === undefined || relay === null ? 'relayed' : `relayed by machine ${relay.slice(0, 12)}`
}
