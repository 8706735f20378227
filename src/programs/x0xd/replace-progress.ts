import { type Clock, systemClock } from '../../base/clock.ts'
import { counted, shellWords } from '../../base/format.ts'
import { shownLine } from '../../base/visible-text.ts'
import { type Output, write } from '../../cli/output.ts'
import type { Work, WorkList } from '../../protocol/handover.ts'
import { CountdownLine } from '../../supervision/countdown-line.ts'

/** Interval of lines about an unchanged drain, for output that is not a terminal. */
const LINE_MS = 30_000

const SECOND = 1_000
const MINUTE = 60 * SECOND

/** "4 min 12 s", "12 s". Rounded up, so that the last value is not 0. */
const timeText = (ms: number): string => {
  const seconds = Math.ceil(ms / SECOND)
  const rest = `${seconds % 60} s`
  return ms <= MINUTE ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${rest}`
}

/** "draining: 3 runs, 4 min 12 s left". */
export const drainText = (total: number, leftMs: number): string => `draining: ${counted(total, 'run')}, ${timeText(leftMs)} left`

const KINDS: Readonly<Record<Work['kind'], (who: string) => string>> = {
  run: (who) => `run of ${who}`,
  detached: (who) => `detached run of ${who}`,
  requested: (who) => `run on ${who}, requested here`,
  fanout: () => 'fan-out, requested here',
  copy: (who) => `copy with ${who}`,
  rexd: (who) => `REXD command of ${who}`,
}

/** One piece of ended work, without control characters of its requester. */
export const workLine = ({ kind, id, who, argv }: Work): string => {
  const what = (Object.hasOwn(KINDS, kind) ? KINDS[kind] : () => kind)(who ?? 'this machine')
  return shownLine(`${[what, ...(id === null ? [] : [id])].join(' ')}: ${shellWords(argv)}`)
}

const endedLines = ({ total, work }: WorkList): string[] => {
  if (total === 0) return ['the running daemon stops; it ends no run']
  const more = total - work.length
  return [
    `the running daemon stops and ends ${counted(total, 'run')}:`,
    ...work.map((one) => `  ${workLine(one)}`),
    ...(more > 0 ? [`  and ${more} more`] : []),
    ...(work.some(({ kind }) => kind === 'detached') ? ['detached runs end with their daemon; their output is kept'] : []),
  ]
}

/** Shows on standard error how a daemon is replaced. */
export class ReplaceProgress {
  readonly #stderr: Output
  readonly #clock: Clock
  readonly #line: CountdownLine
  #shownTotal = -1
  #shownAt = Number.NEGATIVE_INFINITY

  constructor(stderr: Output, clock: Clock = systemClock) {
    this.#stderr = stderr
    this.#clock = clock
    this.#line = new CountdownLine({ stderr, clock })
  }

  async progress(leftMs: number, { total }: WorkList): Promise<void> {
    const now = this.#clock.monotonic()
    if (total === 0 || (total === this.#shownTotal && (this.#stderr.isTTY === true || now - this.#shownAt < LINE_MS))) return
    ;[this.#shownTotal, this.#shownAt] = [total, now]
    await this.#line.show((left) => `x0xd: ${drainText(total, left)} (Ctrl-C: the running daemon continues)`, leftMs)
  }

  /** Null if the daemon does not tell. */
  async ending(ended: WorkList | null): Promise<void> {
    await this.#line.end()
    const lines = ended === null ? ['the running daemon stops, and ends its runs'] : endedLines(ended)
    await write(this.#stderr, lines.map((line) => `x0xd: ${line}\n`).join(''))
  }

  async cancelled(): Promise<void> {
    await this.#line.end()
    await write(this.#stderr, 'x0xd: cancelled; the running daemon continues and accepts new runs\n')
  }
}
