import type { OutputName } from '../../../protocol/reasons.ts'
import { shown, shownLine } from '../../../base/visible-text.ts'
import { type Output, write } from '../../../cli/output.ts'
import { ByteBuilder, LINE_FEED } from '../../../protocol/lines.ts'
import type { CliContext } from '../context.ts'
import { type Paint, painter } from '../print.ts'

const LINE_END = Buffer.from('\n')

/** Something else on a terminal that must be erased before a line is written. */
export interface Beside {
  clear(): void
}

type Style = Parameters<Paint>[0]

/** The text before a line, and its style on a terminal. */
export interface Prefix {
  readonly text: string
  readonly style?: Style
}

interface Side {
  readonly output: Output
  readonly paint: Paint
  /** Whether control characters are escaped. */
  readonly isSafe: boolean
}

/** Writes lines of hosts to standard output and standard error. On a terminal, control characters are escaped. */
export class ShownLines {
  readonly #beside: Beside
  readonly #sides: Readonly<Record<OutputName, Side>>

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

  isTerminal(stream: OutputName): boolean {
    return this.#sides[stream].output.isTTY === true
  }

  /** One write for all lines, so that no other line comes between. False if the output has no reader. */
  async write(stream: OutputName, { text, style }: Prefix, lines: Iterable<Uint8Array>, lineStyle?: Style): Promise<boolean> {
    const side = this.#sides[stream]
    const safe = side.output.isTTY === true ? shownLine(text) : text
    const before = Buffer.from(style === undefined || text === '' ? safe : side.paint(style, safe))
    const parts: Uint8Array[] = []
    for (const line of lines) parts.push(before, lineOf(side, line, lineStyle), LINE_END)
    if (parts.length === 0) return true
    this.#beside.clear()
    return write(side.output, Buffer.concat(parts))
  }

  /** Writes a line of x0x itself. */
  async say(stream: OutputName, text: string, style?: Style): Promise<boolean> {
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

/** Bytes held of an unfinished line. A longer line is shown in pieces. Both outputs of 64 hosts take 4 MiB. */
export const MAX_LINE_PIECE = 32 * 1024

/** Splits bytes into lines across chunks. A line that is too long comes in pieces. */
export class LinePieces {
  readonly #held = new ByteBuilder({ max: MAX_LINE_PIECE })

  /** The last line without a line end, or null. */
  rest(): Uint8Array | null {
    return this.#held.length === 0 ? null : this.#held.take()
  }

  /** The lines that end in this chunk, without line feeds. */
  *push(chunk: Uint8Array): Generator<Uint8Array, void, undefined> {
    for (let rest = chunk; rest.length > 0;) {
      const end = rest.indexOf(LINE_FEED)
      const line = end === -1 ? rest : rest.subarray(0, end)
      const room = MAX_LINE_PIECE - this.#held.length
      if (line.length > room) {
        this.#held.add(line.subarray(0, room))
        yield this.#held.take()
        rest = rest.subarray(room)
        continue
      }
      if (end === -1) return this.#held.add(line)
      rest = rest.subarray(end + 1)
      if (this.#held.length === 0) yield line
      else {
        this.#held.add(line)
        yield this.#held.take()
      }
    }
  }
}

export function* linesOfWhole(bytes: Uint8Array): Generator<Uint8Array, void, undefined> {
  const pieces = new LinePieces()
  yield* pieces.push(bytes)
  const rest = pieces.rest()
  if (rest !== null) yield rest
}
