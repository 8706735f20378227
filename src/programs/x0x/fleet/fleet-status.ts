import type { FanoutLedgerJson } from '../../../protocol/fanout.ts'

/** The command ran on every host, and failed on some. */
const EXIT_FAILED = 1
/** On some it certainly did not run to its end. */
const EXIT_NOT_ALL_RAN = 3
/** Of some it is not known whether it ran. */
const EXIT_UNKNOWN = 4

/** The exit status of a fan-out: that of the worst that happened to a host. */
export const fleetStatus = (ledger: Omit<FanoutLedgerJson, 'type' | 'fanout_id' | 'ok' | 'asked' | 'ran'>): number => {
  if (ledger.unknown > 0) return EXIT_UNKNOWN
  if (ledger.denied + ledger.unreachable + ledger.not_started + ledger.cancelled > 0) return EXIT_NOT_ALL_RAN
  return ledger.failed > 0 ? EXIT_FAILED : 0
}
