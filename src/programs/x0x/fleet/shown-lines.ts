import { shown, shownLine } from '../../../base/visible-text.ts'
import { type Output, write } from '../../../supervision/program-output.ts'
import type { CliContext } from '../context.ts'
import { type Paint, painter } from '../print.ts'

export type Stream = 'stdout' | 'stderr'

const LINE_END = Buffer.from('\n')

/** What a terminal shows beside lines, and must take away before one is written. */
export interface Beside {
  clear(): void
}

type Style = Parameters<Paint>[0]

/** A text before a line, and how it looks on a terminal. */
export interface Prefix {
  readonly text: string
  readonly style?: Style
}

interface Side {
  readonly output: Output
  readonly paint: Paint
  /** Control characters are shown, not obeyed. */
  readonly isSafe: boolean
}

/** Writes lines of hosts to standard output and standard error: as they are, but on a terminal what it would obey is shown. */
export class ShownLines {
  readonly #beside: Beside
  readonly #sides: Readonly<Record<Stream, Side>>

  constructor(
    components: { readonly context: Pick<CliContext, 'stdout' | 'stderr' | 'env'>; readonly beside: Beside },
    init: { readonly raw: boolean },
  ) {
    const { context, beside } = components
    const side = (output: Output): Side => ({
      output,
      paint: painter(output, context.env),
      isSafe: output.isTTY === true && !init.raw,
    })
    this.#beside = beside
    this.#sides = { stdout: side(context.stdout), stderr: side(context.stderr) }
  }

  /** Somebody may look at it. */
  isTerminal(stream: Stream): boolean {
    return this.#sides[stream].output.isTTY === true
  }

  /** One write for all of them, so that no line of another stands between. False when nobody reads any more. */
  async write(stream: Stream, { text, style }: Prefix, lines: Iterable<Uint8Array>, lineStyle?: Style): Promise<boolean> {
    const side = this.#sides[stream]
    const safe = side.output.isTTY === true ? shownLine(text) : text
    const before = Buffer.from(style === undefined || text === '' ? safe : side.paint(style, safe))
    const parts: Uint8Array[] = []
    for (const line of lines) parts.push(before, lineOf(side, line, lineStyle), LINE_END)
    if (parts.length === 0) return true
    this.#beside.clear()
    return write(side.output, Buffer.concat(parts))
  }

  /** A line of ours. */
  async say(stream: Stream, text: string, style?: Style): Promise<boolean> {
    return this.write(stream, { text, ...(style !== undefined && { style }) }, [Buffer.alloc(0)])
  }
}

const lineOf = ({ isSafe, paint }: Side, line: Uint8Array, style: Style | undefined): Uint8Array => {
  if (!isSafe && style === undefined) return line
  const text = isSafe ? shownText(line) : Buffer.from(line).toString()
  return Buffer.from(style === undefined ? text : paint(style, text))
}

const shownText = (line: Uint8Array): string => {
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(line)
  return shown(text.endsWith('\r') ? text.slice(0, -1) : text)
}
