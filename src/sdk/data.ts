import { whenAborted } from './promises.ts'

/** Bytes, or text in UTF-8. */
export type Data = Uint8Array | string
/** All at once, or as it comes. */
export type DataSource = Data | AsyncIterable<Data>

export const toBytes = (data: Data): Uint8Array => (typeof data === 'string' ? Buffer.from(data, 'utf8') : data)

/** UTF-8; what is none becomes U+FFFD. */
export const toText = (bytes: Uint8Array): string => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)

const isWhole = (source: DataSource): source is Data => typeof source === 'string' || source instanceof Uint8Array

/** What a source gives, one after the other. */
export const partsOf = (source: DataSource): Iterable<Data> | AsyncIterable<Data> => (isWhole(source) ? [source] : source)

/** The bytes of a source that has them already; null of one that is still to give them. */
export const wholeOf = (source: DataSource): Uint8Array | null => (isWhole(source) ? toBytes(source) : null)

/** The same bytes in chunks of exactly `size`, but for the last; of nothing, one that is empty. */
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

/** What a source gives until the signal is aborted; then the source is released, also while its next part is awaited. */
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

/** Null: aborted first. Not `Promise.race` with one promise for all parts, which would keep every part for as long as the signal lives. */
const nextUnlessAborted = async (iterator: AsyncIterator<Data>, signal: AbortSignal): Promise<IteratorResult<Data> | null> =>
  new Promise((resolve, reject) => {
    const release = whenAborted(signal, () => resolve(null))
    iterator.next().then(resolve, reject).finally(release)
  })

/** Ends the iteration as leaving a loop does. A stream of Node.js is destroyed as well: its `return` waits for the read under way. */
const release = (source: AsyncIterable<Data>, iterator: AsyncIterator<Data>): void => {
  // Not waited for.
  iterator.return?.().catch(() => undefined)
  if ('destroy' in source && typeof source.destroy === 'function') source.destroy()
}
