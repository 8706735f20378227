import type { Pinged } from '../protocol/api-answers.ts'

export const routeText = ({ relay }: Pick<NonNullable<Pinged['path']>, 'relay'>): string =>
  relay === null ? 'direct' : `relayed by machine ${relay.slice(0, 12)}`
