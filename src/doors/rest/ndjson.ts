import { AppError } from '../../base/errors.ts'
import { Gathered } from '../../base/gathered.ts'
import { MAX_NDJSON_LINE } from '../../protocol/local-limits.ts'

const LINE_FEED = 0x0a

/** Cuts bytes into lines wherever the chunks end; keeps at most one line. */
export class LineSplitter {
  readonly #kept = new Gathered({ max: MAX_NDJSON_LINE })

  /** The last line, when it had no end of its own. */
  rest(): Uint8Array {
    return this.#kept.take()
  }

  /** Yields the lines completed by this chunk, without their ends. Throws `too_large` for a line above the limit. */
  *push(chunk: Uint8Array): Generator<Uint8Array, void, undefined> {
    let start = 0
    for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, start)) {
      const part = chunk.subarray(start, end)
      start = end + 1
      yield this.#whole(part)
    }
    this.#keep(chunk.subarray(start))
  }

  #keep(part: Uint8Array): void {
    this.#requireRoom(part)
    if (part.length > 0) this.#kept.add(part)
  }

  /** A line in one chunk is most of them, and needs no copy. */
  #whole(last: Uint8Array): Uint8Array {
    this.#requireRoom(last)
    if (this.#kept.length === 0) return last
    this.#kept.add(last)
    return this.#kept.take()
  }

  #requireRoom({ length }: Uint8Array): void {
    if (this.#kept.length + length > MAX_NDJSON_LINE) throw new AppError('too_large', `a line is longer than ${MAX_NDJSON_LINE} bytes`)
  }
}

/** Text of foreign bytes; throws `bad_request` where they are not UTF-8, so that nothing is silently altered. */
export const utf8 = (bytes: Uint8Array): string => {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (error) {
    throw new AppError('bad_request', 'the body is not valid UTF-8', { cause: error })
  }
}

/** Throws `bad_request` with the parser's own words. */
export const parseJson = (bytes: Uint8Array): unknown => {
  try {
    return JSON.parse(utf8(bytes)) as unknown
  } catch (error) {
    if (error instanceof AppError) throw error
    throw new AppError('bad_request', `the body is not valid JSON: ${(error as Error).message}`, { cause: error })
  }
}

/** Standard base64 with its padding and nothing else; throws `bad_request` naming `key`. */
export const decodeBase64 = (text: string, key: string): Uint8Array => {
  const bytes = Buffer.from(text, 'base64')
  if (bytes.toString('base64') !== text) throw new AppError('bad_request', `${key}: not base64`)
  return bytes
}

/** The lines that are not blank, without their ends. */
export async function* bodyLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const splitter = new LineSplitter()
  for await (const chunk of body) {
    for (const line of splitter.push(chunk)) if (!isBlank(line)) yield line
  }
  const rest = splitter.rest()
  if (!isBlank(rest)) yield rest
}

const isBlank = (line: Uint8Array): boolean => line.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d)
