import type { Readable, Writable } from 'node:stream'
import { LineSplitter } from '../protocol/lines.ts'
import { utf8Text } from '../protocol/text.ts'
import { toBytes } from './data.ts'
import { RexdProtocolError } from './errors.ts'
import { type Deferred, deferred, pause } from './promises.ts'
import { CLOSE_GRACE_MS, DRAIN_MS, MAX_INCOMING_MESSAGE, type Transport, type TransportEvents, type TransportFactory } from './transport.ts'

/** The text of a line. Throws `RexdProtocolError`. */
const textOf = (line: Uint8Array): string => {
  const text = utf8Text(line)
  if (text === null) throw new RexdProtocolError('a message is not valid UTF-8')
  return text
}

const tooLong = (): Error => new RexdProtocolError(`a message has more than ${MAX_INCOMING_MESSAGE} bytes`)

/** One message a line (NDJSON) over a pair of byte streams. */
export class ByteTransport implements Omit<Transport, 'close'> {
  readonly #readable: Readable
  readonly #writable: Writable
  readonly #events: TransportEvents
  readonly #lines = new LineSplitter({ max: MAX_INCOMING_MESSAGE })
  readonly #finished = new AbortController()
  /** Aborted when nothing more can be read. */
  readonly finished: AbortSignal = this.#finished.signal
  #drained: Deferred<void> | null = null
  #paused = false
  #over = false
  /** Nothing can be sent any more, and why; what the server has sent is still read. */
  #unwritable: { readonly error: Error | null } | null = null

  constructor(components: { readable: Readable; writable: Writable }, events: TransportEvents) {
    const { readable, writable } = components
    this.#readable = readable
    this.#writable = writable
    this.#events = events
    writable.on('error', (error: Error) => this.#writableEnded(error))
    writable.on('close', () => this.#writableEnded(null))
    writable.on('drain', () => this.#settle())
    readable.on('error', (error: Error) => this.#readableEnded(error))
    readable.on('end', () => this.#readableEnded(this.#unwritable?.error ?? null))
    readable.on('close', () => this.#readableEnded(this.#unwritable?.error ?? null))
    readable.on('data', (chunk: Uint8Array | string) => this.#read(toBytes(chunk)))
  }

  send(text: string): void | Promise<void> {
    if (this.#over) return undefined
    if (this.#unwritable !== null) {
      // While reading is paused nothing else would report it.
      if (this.#paused) this.#tell(this.#unwritable.error)
      return undefined
    }
    if (this.#writable.write(`${text}\n`)) return undefined
    this.#drained ??= deferred<void>()
    return this.#drained.promise
  }

  pause(): void {
    this.#paused = true
    if (!this.#over) this.#readable.pause()
  }

  resume(): void {
    this.#paused = false
    this.#readable.resume()
    if (this.#unwritable !== null) void this.#giveUp()
  }

  /** Ends what we send, drops what still comes, and reports nothing from now on. */
  end(): void {
    this.#over = true
    this.#settle()
    if (!this.#writable.destroyed) this.#writable.end()
    this.#readable.resume()
  }

  destroy(): void {
    this.#over = true
    this.#settle()
    this.#readable.destroy()
    this.#writable.destroy()
  }

  #read(chunk: Uint8Array): void {
    try {
      for (const line of this.#over ? [] : this.#lines.pushStrictly(chunk, tooLong)) {
        const text = textOf(line)
        // A blank line says nothing.
        if (text.trim() === '') continue
        this.#events.onMessage(text)
        if (this.#over) return
      }
    } catch (error) {
      this.#tell(error as Error)
    }
  }

  #readableEnded(error: Error | null): void {
    this.#finished.abort()
    this.#tell(error)
  }

  #writableEnded(error: Error | null): void {
    this.#settle()
    if (this.#over || this.#unwritable !== null) return
    this.#unwritable = { error }
    void this.#giveUp()
  }

  /** Leaves `DRAIN_MS` for what the server has sent, and as long as it takes while reading is paused; then reports the end. */
  async #giveUp(): Promise<void> {
    await pause(DRAIN_MS, this.finished)
    if (!this.#paused) this.#tell(this.#unwritable?.error ?? null)
  }

  #tell(error: Error | null): void {
    if (this.#over) return
    this.#over = true
    this.#settle()
    this.#events.onClosed(error)
  }

  #settle(): void {
    this.#drained?.resolve()
    this.#drained = null
  }
}

class StreamTransport extends ByteTransport implements Transport {
  async close(): Promise<void> {
    this.end()
    await pause(CLOSE_GRACE_MS, this.finished)
    this.destroy()
  }
}

/**
 * REXD over two byte streams that are there already, as those of a child process or one socket twice. Closing ends the
 * one, waits 12 s for the other to end, and destroys both. It cannot be opened a second time.
 */
export const streams = (readable: Readable, writable: Writable): TransportFactory => {
  let opened = false
  const open = async (events: TransportEvents): Promise<Transport> => {
    if (opened) throw new Error('these streams were opened already')
    opened = true
    if (readable.destroyed || writable.destroyed) throw new Error('these streams are closed')
    return new StreamTransport({ readable, writable }, events)
  }
  return { name: 'a pair of streams', again: false, keepsSessions: false, open }
}
