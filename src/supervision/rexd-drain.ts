import type { Readable, Writable } from 'node:stream'
import type { Clock, Timer } from '../base/clock.ts'
import { type WorkList, readWorkList } from '../protocol/handover.ts'
import { DRAIN_POLL_MS, MAX_WORK_JSON } from '../protocol/limits/daemon.ts'
import { LineSplitter } from '../protocol/lines.ts'

/** Lines that a daemon writes to the standard input of its REXD. */
export type RexdWord = 'drain' | 'serve'

const WORK = 'work '
/** One line of REXD's standard output. */
export const MAX_REXD_LINE = WORK.length + MAX_WORK_JSON

/** What REXD does for a drain. */
interface DrainingServer {
  drain(isDraining: boolean): void
  work(): WorkList
}

/** Obeys the words of the daemon, and writes the work that is left until the next word. */
export const obeyDaemon = (
  { rexd, clock }: { readonly rexd: DrainingServer; readonly clock: Clock },
  { stdin, stdout }: { readonly stdin: Readable; readonly stdout: Writable },
): void => {
  const lines = new LineSplitter({ max: WORK.length })
  let timer: Timer | null = null
  let told = ''
  const report = (): void => {
    const line = `${WORK}${JSON.stringify(rexd.work())}\n`
    if (line !== told) stdout.write(line)
    told = line
    timer = clock.setTimeout(report, DRAIN_POLL_MS, { unref: true })
  }
  const obey = (word: string): void => {
    if (word !== 'drain' && word !== 'serve') return
    rexd.drain(word === 'drain')
    timer?.cancel()
    told = ''
    if (word === 'drain') report()
  }
  stdin.on('data', (chunk: Buffer) => {
    for (const line of lines.push(chunk)) obey(line.toString())
  })
}

/** The work in a line of REXD, or null for any other line. Throws `malformed`. */
export const workIn = (line: string): WorkList | null => (line.startsWith(WORK) ? readWorkList(line.slice(WORK.length)) : null)
