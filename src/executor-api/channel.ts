import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { inOneWrite } from '../base/buffers.ts'
import { AppError } from '../base/errors.ts'
import { Condition } from '../base/wait-queue.ts'
import { MAX_PORT_BACKLOG, MAX_PORT_MESSAGE } from '../protocol/limits/wire.ts'
import { type CborValue, decodeCbor } from '../protocol/wire/cbor.ts'
import { FrameDecoder, LARGE_FRAME, encodeFrame, encodeFrameHead, lengthOf } from '../protocol/wire/framing.ts'
import type { Message } from '../protocol/wire/schema.ts'

export interface ExecutorChannelDeps<In, Out> {
  readonly duplex: Duplex
  readonly incoming: Message<In>
  readonly outgoing: Message<Out>
}

export interface ExecutorChannelInit<In> {
  onMessage(message: In): void
  /** Called for a frame that is not a valid message. The framing is intact, so the channel may continue. */
  onMalformed(payload: Uint8Array, error: unknown): void
  /** Called once. The error is null if the other process ended the channel between two messages. */
  onClosed(error: Error | null): void
  /** Stops reading while more than `MAX_PORT_BACKLOG` is unread. Only one process may do so, or both could wait for each other. */
  readonly holdWhenBehind: boolean
}

const nothing = (): void => undefined

/** One end of the executor API. It carries whole messages over a byte stream, bounded in both directions. */
export class ExecutorChannel<In, Out> {
  readonly #deps: ExecutorChannelDeps<In, Out>
  readonly #duplex: Duplex
  readonly #init: ExecutorChannelInit<In>
  readonly #frames = new FrameDecoder(MAX_PORT_MESSAGE)
  readonly #chunks: Uint8Array[] = []
  #closed = false
  readonly #room = new Condition()

  constructor(deps: ExecutorChannelDeps<In, Out>, init: ExecutorChannelInit<In>) {
    this.#deps = deps
    this.#duplex = deps.duplex
    this.#init = init
    this.#duplex.on('data', (chunk: Uint8Array) => this.#take(chunk))
    this.#duplex.on('drain', () => this.#drained())
    this.#duplex.on('end', () => this.#ended())
    this.#duplex.on('error', (error) => this.close(error))
    this.#duplex.on('close', () => this.close(null))
  }

  get closed(): boolean {
    return this.#closed
  }

  /** True while `send` would return false. */
  get full(): boolean {
    return this.#closed || this.#duplex.writableNeedDrain
  }

  /**
   * If it returns false, the other process is behind, and the caller must wait for `drained()`. After the end it drops messages. `tail`
   * holds the bytes of the message's last field in parts. The message then has an empty one there.
   */
  send(message: Out, ...tail: readonly Uint8Array[]): boolean {
    return this.#send(message, tail, nothing)
  }

  /** As `send`. Calls `released` once nothing here reads the tail any more. If the tail may still be read, it never does. */
  sendAndRelease(released: () => void, message: Out, ...tail: readonly Uint8Array[]): boolean {
    return this.#send(message, tail, released)
  }

  #send(message: Out, tail: readonly Uint8Array[], released: () => void): boolean {
    if (this.#closed || this.#duplex.writableEnded) {
      released()
      return false
    }
    const following = lengthOf(tail)
    const head = following === 0 ? this.#deps.outgoing.encode(message) : this.#deps.outgoing.encodeHead(message, following)
    const length = head.length + following
    if (length > MAX_PORT_MESSAGE) throw new AppError('too_large', `a port message of ${length} bytes`)
    const free = this.#write(head, tail, length, released)
    if (this.#init.holdWhenBehind && this.#duplex.writableLength > MAX_PORT_BACKLOG) this.#duplex.pause()
    return free
  }

  /** Writes of one turn leave together, up to the limit of the buffer. A large tail is written separately, to avoid a copy. */
  #write(head: Uint8Array, tail: readonly Uint8Array[], length: number, released: () => void): boolean {
    inOneWrite(this.#duplex)
    const isCopied = length < LARGE_FRAME
    let free = this.#duplex.write(isCopied ? encodeFrame(head, ...tail) : encodeFrameHead(length, head))
    if (isCopied) released()
    else for (const part of tail) free = this.#duplex.write(part, part === tail.at(-1) ? this.#onWritten(released) : undefined)
    if (!free) this.#duplex.uncork()
    return free
  }

  /** Only a socket copies the bytes. Another duplex passes them on to its reader. */
  #onWritten(released: () => void): (error?: Error | null) => void {
    return (error) => {
      if (!error && this.#duplex instanceof Socket) released()
    }
  }

  /** Resolves when there is room again or the channel has ended. */
  async drained(): Promise<void> {
    if (this.#closed || !this.#duplex.writableNeedDrain) return
    await this.#room.wait()
  }

  /** Sends no further messages, and closes when everything was sent. */
  finish(): void {
    if (!this.#closed && !this.#duplex.writableEnded) this.#duplex.end(() => this.close())
  }

  /** Closes both directions at once. */
  close(error: Error | null = null): void {
    if (this.#closed) return
    this.#closed = true
    this.#duplex.uncork()
    this.#duplex.destroy()
    this.#room.notifyAll()
    this.#init.onClosed(error)
  }

  /** A pipe inside one process may deliver while its writer still writes. The delay keeps an answer from overtaking its call. */
  #take(chunk: Uint8Array): void {
    if (this.#chunks.push(chunk) === 1) queueMicrotask(() => this.#read())
  }

  #ended(): void {
    this.#read()
    this.close(this.#frames.idle ? null : new AppError('malformed', 'the port ended inside a message'))
  }

  #read(): void {
    try {
      for (const chunk of this.#chunks.splice(0))
        for (const payload of this.#frames.push(chunk)) {
          if (this.#closed) return
          this.#deliver(payload)
        }
    } catch (error) {
      // After an over-long frame, message boundaries are unknown.
      this.close(error as Error)
    }
  }

  #deliver(payload: Uint8Array): void {
    let message: In
    try {
      message = this.#deps.incoming.decode(payload)
    } catch (error) {
      this.#init.onMalformed(payload, error)
      return
    }
    this.#init.onMessage(message)
  }

  #drained(): void {
    if (this.#duplex.isPaused()) this.#duplex.resume()
    this.#room.notifyAll()
  }
}

/** The tag of a message and the number of its call or run, or null if the bytes are not a message. */
export const headOf = (payload: Uint8Array): [tag: number, number: number] | null => {
  try {
    const value = decodeCbor(payload)
    const [tag, number] = Array.isArray(value) ? (value as readonly CborValue[]) : []
    return typeof tag === 'number' && typeof number === 'number' && number >= 0 ? [tag, number] : null
  } catch {
    return null
  }
}
