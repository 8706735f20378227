import type { FanoutHostJson, FanoutLedgerJson } from '../../../protocol/api/fanout.ts'
import type { OutputPart } from '../../../protocol/api/run-events.ts'

/** Shows the outputs of a fan-out. Each answer is false when nobody reads any more. */
export interface FleetView {
  /** All hosts, before anything of one. */
  start(hosts: readonly string[]): void
  output(host: string, part: OutputPart): Promise<boolean>
  ended(host: FanoutHostJson): Promise<boolean>
  /** Whatever has not been shown yet. */
  finish(ledger: FanoutLedgerJson): Promise<boolean>
  /** Leaves nothing behind; also where it did not come to an end. */
  close(): Promise<void>
}
