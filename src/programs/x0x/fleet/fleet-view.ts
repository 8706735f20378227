import type { FanoutHostJson, FanoutLedgerJson } from '../../../protocol/api/fanout.ts'
import type { OutputPart } from '../../../protocol/api/run-events.ts'

/** Shows the outputs of a fan-out. Methods resolve to false if the output has no reader. */
export interface FleetView {
  /** Called with all hosts before any event. */
  start(hosts: readonly string[]): void
  output(host: string, part: OutputPart): Promise<boolean>
  ended(host: FanoutHostJson): Promise<boolean>
  /** Shows the remaining output. */
  finish(ledger: FanoutLedgerJson): Promise<boolean>
  /** Cleans up, also after an interrupted fan-out. */
  close(): Promise<void>
}
