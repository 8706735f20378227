/** One line of the stream is a frame of at most 60 KiB in base64 and its fields; an error may carry more. */
const MAX_LINE = 16 * 1024 * 1024

/** The lines of a stream of UTF-8 text, however its chunks are cut; the last needs no line feed. Stops reading while its consumer works. */
export async function* linesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  let pending: Uint8Array[] = []
  let size = 0
  for await (const chunk of chunks) {
    let from = 0
    for (let at = chunk.indexOf(10); at !== -1; at = chunk.indexOf(10, from)) {
      pending.push(chunk.subarray(from, at))
      yield Buffer.concat(pending).toString('utf8')
      pending = []
      size = 0
      from = at + 1
    }
    size += chunk.length - from
    if (size > MAX_LINE) throw new RangeError(`a line is longer than ${MAX_LINE} bytes`)
    if (from < chunk.length) pending.push(chunk.subarray(from))
  }
  if (size > 0) yield Buffer.concat(pending).toString('utf8')
}
