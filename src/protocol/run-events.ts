import type { RawOutputJson, RunEventJson } from './run-json.ts'

/** A line is an object without output; an error may carry more. */
const MAX_LINE = 16 * 1024 * 1024
const LINE_FEED = 0x0a

/** Bytes of one output stream, in whatever pieces they came. */
export interface OutputPart {
  readonly type: 'stdout' | 'stderr'
  readonly data: Uint8Array
}

/** What a run's streamed answer holds, in order. */
export type RunPart = OutputPart | Exclude<RunEventJson, { data_b64: string }>

type Line = RawOutputJson | Exclude<RunEventJson, { data_b64: string }>

/** Where the bytes are between two chunks: in a line, or in the output that a line announced. */
class RunEventDecoder {
  #line: Uint8Array[] = []
  #lineLength = 0
  #output: { readonly type: OutputPart['type']; left: number } | null = null

  #keep(part: Uint8Array): void {
    this.#lineLength += part.length
    if (this.#lineLength > MAX_LINE) throw new RangeError(`a line is longer than ${MAX_LINE} bytes`)
    this.#line.push(part)
  }

  /** Throws SyntaxError for a line that is no JSON, RangeError for one without end or that announces no number of bytes. */
  *push(chunk: Uint8Array): Generator<RunPart, void, undefined> {
    for (let rest = chunk; rest.length > 0;) {
      if (this.#output !== null) {
        const data = rest.subarray(0, this.#output.left)
        rest = rest.subarray(data.length)
        yield this.#part(this.#output, data)
        continue
      }
      const end = rest.indexOf(LINE_FEED)
      this.#keep(end === -1 ? rest : rest.subarray(0, end))
      if (end === -1) return
      rest = rest.subarray(end + 1)
      const line = this.#takeLine()
      if (isOutput(line)) this.#announced(line)
      else yield line
    }
  }

  #part(output: { readonly type: OutputPart['type']; left: number }, data: Uint8Array): OutputPart {
    output.left -= data.length
    if (output.left === 0) this.#output = null
    return { type: output.type, data }
  }

  #takeLine(): Line {
    const text = Buffer.concat(this.#line).toString('utf8')
    this.#line = []
    this.#lineLength = 0
    return JSON.parse(text) as Line
  }

  #announced({ type, data_bytes }: RawOutputJson): void {
    if (!Number.isSafeInteger(data_bytes) || data_bytes < 0) throw new RangeError('output of an unknown length')
    if (data_bytes > 0) this.#output = { type, left: data_bytes }
  }
}

const isOutput = (line: Line): line is RawOutputJson => line.type === 'stdout' || line.type === 'stderr'

/** The events of a streamed answer of type `RAW_RUN_TYPE`, however its chunks are cut. Stops reading while its consumer works. */
export async function* runEventsOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<RunPart, void, undefined> {
  const decoder = new RunEventDecoder()
  for await (const chunk of chunks) yield* decoder.push(chunk)
}
