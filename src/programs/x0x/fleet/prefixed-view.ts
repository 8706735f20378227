import { shownLine } from '../../../base/visible-text.ts'
import { textWidth } from '../../../doors/console/screen/fitted-text.ts'
import type { FanoutHostJson } from '../../../protocol/fanout.ts'
import type { OutputPart } from '../../../protocol/run-events.ts'
import type { FleetView } from './fleet-view.ts'
import { LinePieces } from './line-pieces.ts'
import type { Prefix, ShownLines, Stream } from './shown-lines.ts'

/** Names are aligned up to this width; one that is an id of 64 characters would push all output off the screen. */
const MAX_ALIGNED = 24
const STREAMS = ['stdout', 'stderr'] as const

/** As it comes, each line behind the name of its host: `web8: …`. */
export class PrefixedView implements FleetView {
  readonly #lines: ShownLines
  readonly #begun = new Map<string, Record<Stream, LinePieces>>()
  #width = 0

  constructor(components: { readonly lines: ShownLines }) {
    this.#lines = components.lines
  }

  begin(hosts: readonly string[]): void {
    this.#width = hosts.reduce((widest, host) => Math.max(widest, widthOf(host)), 0)
    if (this.#width > MAX_ALIGNED) this.#width = 0
  }

  async output(host: string, { type, data }: OutputPart): Promise<boolean> {
    let pieces = this.#begun.get(host)
    if (pieces === undefined) this.#begun.set(host, (pieces = { stdout: new LinePieces(), stderr: new LinePieces() }))
    return this.#lines.write(type, this.#prefix(host, type), pieces[type].push(data))
  }

  /** What a host wrote last may have no line end: the next line has another prefix, and cannot stand behind it. */
  async ended({ host }: FanoutHostJson): Promise<boolean> {
    const pieces = this.#begun.get(host)
    this.#begun.delete(host)
    return pieces === undefined || this.#rest(host, pieces)
  }

  async finish(): Promise<boolean> {
    for (const [host, pieces] of this.#begun) if (!(await this.#rest(host, pieces))) return false
    return true
  }

  async close(): Promise<void> {
    this.#begun.clear()
  }

  async #rest(host: string, pieces: Record<Stream, LinePieces>): Promise<boolean> {
    for (const stream of STREAMS) {
      const rest = pieces[stream].rest()
      if (rest !== null && !(await this.#lines.write(stream, this.#prefix(host, stream), [rest]))) return false
    }
    return true
  }

  /** Aligned for eyes alone: programs cut at the first colon and blank. */
  #prefix(host: string, stream: Stream): Prefix {
    const style = stream === 'stdout' ? 'cyan' : 'yellow'
    if (!this.#lines.isTerminal(stream)) return { text: `${host}: `, style }
    return { text: `${host}: ${' '.repeat(Math.max(0, this.#width - widthOf(host)))}`, style }
  }
}

const widthOf = (host: string): number => textWidth(shownLine(host))
