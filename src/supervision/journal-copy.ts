import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { StartableEntry } from '../base/startable.ts'
import type { ExecCounters } from '../executor/exec-counters.ts'
import { SyslogCopy } from '../journal/syslog-copy.ts'
import { DatagramSocket, checkDatagrams } from '../process/datagram-sender.ts'

export interface JournalCopy {
  /** As of `JournalComponents`. */
  readonly onWritten: ((line: Uint8Array) => void) | null
  /** To be started before the journals, and so stopped behind them. */
  readonly entries: readonly StartableEntry[]
}

/** Gives the syslog at this socket a copy of what the journals of this process have; null: nobody gets one. Throws `bad_config`. */
export const copyToSyslog = (components: { clock: Clock; log: Logger; counters: ExecCounters }, path: string | null): JournalCopy => {
  if (path === null) return { onWritten: null, entries: [] }
  checkDatagrams()
  const { clock, log, counters } = components
  const socket = new DatagramSocket({ clock }, { path, onLost: (count, why) => copy.lost(count, why) })
  const copy = new SyslogCopy({ clock, log, sender: socket, counted: (lost) => counters.count('syslog_lost', lost) }, { path })
  return { onWritten: copy.take, entries: [{ name: 'copy for syslog', startable: socket }] }
}
