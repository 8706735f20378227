import { shown } from '../../base/visible-text.ts'
import { castEvent, castHeader } from '../../protocol/console/asciicast.ts'
import { CONSOLE_TERMINAL } from '../../protocol/console/messages.ts'
import type { TranscriptEntry } from '../../protocol/console/transcript.ts'
import { FILE_PAGE, linesAround, linesText } from './transcript-text.ts'
import type { WrappedLine } from './screen/cells.ts'

const SIZE = { width: CONSOLE_TERMINAL.cols, height: CONSOLE_TERMINAL.rows }
/** Maximum pause of a player while nothing happens, in seconds. */
const IDLE_SECONDS = 2

/** Output cannot be bold: escapes in it are shown as text. So it cannot pass for a banner. */
const bold = (lines: readonly WrappedLine[]): string => linesText(lines, FILE_PAGE).replaceAll(/.+/g, (line) => `\u001b[1m${line}\u001b[0m`)

const startOf = ({ started_at, time }: TranscriptEntry): number => Date.parse(started_at ?? time)

/** The output in the parts in which it arrived. */
const partsOf = ({ output, timing = [], duration_ms = 0 }: TranscriptEntry): { readonly ms: number; readonly text: string }[] => {
  const bytes = Buffer.from(output)
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  let at = 0
  const parts = timing.map(([ms, length]) => ({ ms, text: decoder.decode(bytes.subarray(at, (at += length)), { stream: true }) }))
  return [...parts, { ms: Math.max(duration_ms, parts.at(-1)?.ms ?? 0), text: decoder.decode(bytes.subarray(at)) }]
}

/**
 * A transcript as an asciicast. Commands follow one another as on the console, each with the times that its output had.
 */
export class Asciicast {
  /** Start of the first command in milliseconds since the Unix epoch, or null yet. */
  #origin: number | null = null
  /** Milliseconds since then; never goes back. */
  #now = 0

  /** The first line. `first`: null for a transcript without a command. */
  header(title: string, first: TranscriptEntry | null): string {
    const timestamp = first === null ? {} : { timestamp: Math.floor(startOf(first) / 1_000) }
    return castHeader({ ...SIZE, ...timestamp, idle_time_limit: IDLE_SECONDS, title, term: 'xterm-256color' })
  }

  /** The lines of one command. */
  events(entry: TranscriptEntry): string {
    this.#origin ??= startOf(entry)
    const begun = Math.max(this.#now, startOf(entry) - this.#origin)
    const { before, after } = linesAround(entry, FILE_PAGE.look)
    const lines = [this.#event(begun, bold(before))]
    let last = '\n'
    for (const { ms, text } of partsOf(entry)) {
      if (text !== '') lines.push(this.#event(begun + ms, shown(text)))
      last = text.at(-1) ?? last
    }
    return [...lines, this.#event(begun + (entry.duration_ms ?? 0), `${last === '\n' ? '' : '\n'}${bold(after)}`)].join('')
  }

  #event(ms: number, text: string): string {
    this.#now = Math.max(this.#now, ms)
    return castEvent({ ms: this.#now, kind: 'o', text: text.replaceAll('\n', '\r\n') })
  }
}
