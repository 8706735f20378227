import type { Clock, Timer } from '../../../base/clock.ts'
import type { Environment } from '../../../base/runtime.ts'
import { shownLine } from '../../../base/visible-text.ts'
import type { Output } from '../../../cli/output.ts'
import { cutTo } from '../../../doors/console/screen/cells.ts'
import { type FanoutHostJson, FanoutSums } from '../../../protocol/api/fanout.ts'
import { type Paint, painter } from '../print.ts'
import { EMPTY_LINE, lineWidth } from '../progress.ts'

/** Redraws at most ten times per second, to spare slow terminals. */
const REDRAW_MS = 100
/** Interval of redraws for the elapsed time. */
const TICK_MS = 1_000

/** Such as "14 s" or "1:05". */
export const timeText = (ms: number): string => {
  const seconds = Math.floor(ms / 1_000)
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)}:${`${seconds % 60}`.padStart(2, '0')}`
}

interface FleetProgressInit {
  readonly env: Environment
  /** Print nothing: for `--quiet`, or a terminal that cannot redraw. */
  readonly off: boolean
}

/** Shows the progress of a fan-out in a terminal's last line, which is erased while other output is written. */
export class FleetProgress {
  readonly #components: { readonly stderr: Output; readonly clock: Clock }
  readonly #off: boolean
  readonly #paint: Paint
  readonly #began: number
  readonly #sums = new FanoutSums()
  /** Running hosts in the order of their start. */
  readonly #running = new Map<string, number>()
  #asked = 0
  #ending = false
  #timer: Timer | null = null
  #drawn = -Infinity
  #shown = false
  #ended = false

  constructor(components: { readonly stderr: Output; readonly clock: Clock }, init: FleetProgressInit) {
    this.#components = components
    this.#off = init.off || components.stderr.isTTY !== true
    this.#paint = painter(components.stderr, init.env)
    this.#began = components.clock.monotonic()
  }

  /** Milliseconds since the start. */
  get elapsedMs(): number {
    return this.#components.clock.monotonic() - this.#began
  }

  asked(hosts: number): void {
    this.#asked = hosts
    this.#changed()
  }

  begun(host: string): void {
    this.#running.set(host, this.#components.clock.monotonic())
    this.#changed()
  }

  ended(host: FanoutHostJson): void {
    this.#running.delete(host.host)
    this.#sums.add(host)
    this.#changed()
  }

  /** Called after Ctrl-C. */
  cancelling(): void {
    this.#ending = true
    this.#changed()
  }

  /** Erases the line for other output. */
  clear(): void {
    if (!this.#shown) return
    this.#shown = false
    this.#components.stderr.write(EMPTY_LINE)
    this.#changed()
  }

  end(): void {
    this.#ended = true
    this.#timer?.cancel()
    this.#timer = null
    if (this.#shown) this.#components.stderr.write(EMPTY_LINE)
    this.#shown = false
  }

  /** Redraws as soon as allowed. */
  #changed(): void {
    if (this.#off || this.#ended) return
    this.#timer?.cancel()
    this.#drawIn(Math.max(0, this.#drawn + REDRAW_MS - this.#components.clock.monotonic()))
  }

  #drawIn(ms: number): void {
    this.#timer = this.#components.clock.setTimeout(() => this.#draw(), ms, { unref: true })
  }

  #draw(): void {
    const { stderr, clock } = this.#components
    this.#drawn = clock.monotonic()
    this.#shown = true
    stderr.write(`${EMPTY_LINE}${cutTo(this.#text(), lineWidth(stderr))}`)
    this.#drawIn(TICK_MS)
  }

  #text(): string {
    const { ended, unsuccessful } = this.#sums
    const [slowest] = this.#running
    const parts = [
      `${ended} of ${this.#asked} done`,
      `${this.#running.size} running`,
      ...(unsuccessful === 0 ? [] : [this.#paint('red', `${unsuccessful} failed`)]),
      timeText(this.elapsedMs),
      ...(slowest === undefined ? [] : [`slowest ${shownLine(slowest[0])} ${timeText(this.#components.clock.monotonic() - slowest[1])}`]),
    ]
    return `x0x: ${this.#ending ? 'cancelling, ' : ''}${parts.join(', ')}`
  }
}
