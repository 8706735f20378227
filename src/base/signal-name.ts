import { constants } from 'node:os'

/** `SIGTERM` for 15; null for a number that has no name here. */
export const signalName = (number: number): NodeJS.Signals | null =>
  (Object.entries(constants.signals).find(([, value]) => value === number)?.[0] as NodeJS.Signals | undefined) ?? null
