import { whenAborted } from './promises.ts'

/** Bytes, or text in UTF-8. */
export type Data = Uint8Array | string
/** A value, or a source that is read as it comes. */
export type DataSource = Data | AsyncIterable<Data>

export const toBytes = (data: Data): Uint8Array => (typeof data === 'string' ? Buffer.from(data, 'utf8') : data)

/** As UTF-8. Invalid bytes become U+FFFD. */
export const toText = (bytes: Uint8Array): string => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)

const isWhole = (source: DataSource): source is Data => typeof source === 'string' || source instanceof Uint8Array

export const partsOf = (source: DataSource): Iterable<Data> | AsyncIterable<Data> => (isWhole(source) ? [source] : source)

/** The bytes of a source that is a value, or null for any other. */
export const wholeOf = (source: DataSource): Uint8Array | null => (isWhole(source) ? toBytes(source) : null)

/** The same bytes in chunks of exactly `size`, except the last. Empty data is one empty chunk. */
export async function* contentChunks(source: DataSource, size: number): AsyncGenerator<Uint8Array, void, undefined> {
  let parts: Uint8Array[] = []
  let length = 0
  let given = 0
  for await (const part of partsOf(source)) {
    const bytes = toBytes(part)
    for (let at = 0; at < bytes.length;) {
      const piece = bytes.subarray(at, at + size - length)
      parts.push(piece)
      length += piece.length
      at += piece.length
      if (length < size) continue
      yield join(parts)
      given += 1
      parts = []
      length = 0
    }
  }
  if (length > 0 || given === 0) yield join(parts)
}

const join = (parts: readonly Uint8Array[]): Uint8Array => (parts.length === 1 ? parts[0]! : Buffer.concat(parts))

/** Yields from a source until the signal is aborted, then releases the source, also while its next part is pending. */
export async function* untilAborted(source: DataSource, signal: AbortSignal): AsyncGenerator<Data, void, undefined> {
  if (isWhole(source)) {
    yield source
    return
  }
  const iterator = source[Symbol.asyncIterator]()
  let ended = false
  try {
    for (;;) {
      const given = await nextUnlessAborted(iterator, signal)
      ended = given?.done === true
      if (given === null || ended) return
      yield given.value as Data
    }
  } catch (error) {
    ended = true
    throw error
  } finally {
    if (!ended) release(source, iterator)
  }
}

/** Null if aborted first. `Promise.race` with one promise for all parts would keep every part in memory until the signal is freed. */
const nextUnlessAborted = async (iterator: AsyncIterator<Data>, signal: AbortSignal): Promise<IteratorResult<Data> | null> =>
  new Promise((resolve, reject) => {
    const release = whenAborted(signal, () => resolve(null))
    iterator.next().then(resolve, reject).finally(release)
  })

/** Ends the iteration as leaving a loop does. A Node.js stream is also destroyed, because its `return` waits for a pending read. */
const release = (source: AsyncIterable<Data>, iterator: AsyncIterator<Data>): void => {
  // This promise is not awaited.
  iterator.return?.().catch(() => undefined)
  if ('destroy' in source && typeof source.destroy === 'function') source.destroy()
}
