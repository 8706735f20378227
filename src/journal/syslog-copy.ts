import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { syslogMessage } from './syslog-message.ts'

/** How often what was lost is told again. */
export const LOSS_TOLD_MS = 60_000

/** Sends datagrams to one socket and waits for nobody. */
export interface DatagramSender {
  /** False: there is no room, and it is not sent. */
  send(message: string): boolean
}

export interface SyslogCopyComponents {
  readonly clock: Clock
  readonly log: Logger
  readonly sender: DatagramSender
  /** Counts messages that nobody got. */
  readonly counted: (lost: number) => void
}

/** Gives syslog a copy of each line that is in the journal. It holds up neither the journal nor a run: what cannot be sent is lost, counted and told. */
export class SyslogCopy {
  readonly #components: SyslogCopyComponents
  readonly #path: string
  #untold = 0
  #toldAt = -Infinity

  constructor(components: SyslogCopyComponents, init: { readonly path: string }) {
    this.#components = components
    this.#path = init.path
  }

  /** A line as it stands in the file, without its line feed. */
  readonly take = (line: Uint8Array): void => {
    const message = syslogMessage(line, 'x0xd')
    if (message !== null && !this.#components.sender.send(message)) this.lost(1, 'it is behind, or gone')
  }

  /** So many reached nobody. */
  lost(count: number, why: string): void {
    const { clock, counted, log } = this.#components
    counted(count)
    this.#untold += count
    if (this.#untold === 0) return
    const now = clock.monotonic()
    if (now - this.#toldAt < LOSS_TOLD_MS) return
    log.warn({ path: this.#path, lost: this.#untold, why }, 'lines of the journal did not reach syslog; the journal has them')
    this.#toldAt = now
    this.#untold = 0
  }
}
