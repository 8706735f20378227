import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import { LineSplitter } from '../protocol/lines.ts'
import { utf8Text } from '../protocol/text.ts'
import { toBytes } from './data.ts'
import { RexdProtocolError, quote, textOf } from './errors.ts'
import { type Deferred, deferred, pause } from './promises.ts'
import {
  CLOSE_GRACE_MS,
  CLOSE_KILL_MS,
  DRAIN_MS,
  MAX_INCOMING_MESSAGE,
  type Transport,
  type TransportEvents,
  type TransportFactory,
} from './transport.ts'

/** The text of a line. Throws `RexdProtocolError`. */
const lineText = (line: Uint8Array): string => {
  const text = utf8Text(line)
  if (text === null) throw new RexdProtocolError('a message is not valid UTF-8')
  return text
}

const tooLong = (): Error => new RexdProtocolError(`a message has more than ${MAX_INCOMING_MESSAGE} bytes`)

/** One message per line (NDJSON) over a pair of byte streams. */
export class ByteTransport implements Omit<Transport, 'close'> {
  readonly #readable: Readable
  readonly #writable: Writable
  readonly #events: TransportEvents
  readonly #lines = new LineSplitter({ max: MAX_INCOMING_MESSAGE })
  readonly #finished = new AbortController()
  /** Aborted at the end of input. */
  readonly finished: AbortSignal = this.#finished.signal
  #drained: Deferred<void> | null = null
  #paused = false
  #ended = false
  /** Why no more can be sent. Input of the server is still read. */
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
    if (this.#ended) return undefined
    if (this.#unwritable !== null) {
      // While reading is paused, no other event would report it.
      if (this.#paused) this.#emit(this.#unwritable.error)
      return undefined
    }
    if (this.#writable.write(`${text}\n`)) return undefined
    this.#drained ??= deferred<void>()
    return this.#drained.promise
  }

  pause(): void {
    this.#paused = true
    if (!this.#ended) this.#readable.pause()
  }

  resume(): void {
    this.#paused = false
    this.#readable.resume()
    if (this.#unwritable !== null) void this.#abandon()
  }

  /** Ends the output and drops further input, without further reports. */
  end(): void {
    this.#ended = true
    this.#settle()
    if (!this.#writable.destroyed) this.#writable.end()
    this.#readable.resume()
  }

  destroy(): void {
    this.#ended = true
    this.#settle()
    this.#readable.destroy()
    this.#writable.destroy()
  }

  #read(chunk: Uint8Array): void {
    try {
      for (const line of this.#ended ? [] : this.#lines.pushStrictly(chunk, tooLong)) {
        const text = lineText(line)
        if (text.trim() === '') continue
        this.#events.onMessage(text)
        if (this.#ended) return
      }
    } catch (error) {
      this.#emit(error as Error)
    }
  }

  #readableEnded(error: Error | null): void {
    this.#finished.abort()
    this.#emit(error)
  }

  #writableEnded(error: Error | null): void {
    this.#settle()
    if (this.#ended || this.#unwritable !== null) return
    this.#unwritable = { error }
    void this.#abandon()
  }

  /** Reports the end after `DRAIN_MS`, and later while reading is paused, so that the server's remaining messages arrive first. */
  async #abandon(): Promise<void> {
    await pause(DRAIN_MS, this.finished)
    if (!this.#paused) this.#emit(this.#unwritable?.error ?? null)
  }

  #emit(error: Error | null): void {
    if (this.#ended) return
    this.#ended = true
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
 * REXD over two existing byte streams, such as those of a child process, or one socket for both. Closing ends one, waits 12 s for the
 * other to end, and destroys both. It can only be opened once.
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

/** Bytes from the end of a child's stderr for error messages. */
const MAX_STDERR_KEPT = 8 * 1024

export interface StdioOptions {
  /** The program and its arguments, such as `['ssh', '-T', 'host', 'rexd', '--stdio']`. No shell interprets them here. */
  readonly command: readonly string[]
  /** Its whole environment, by default that of this process. */
  readonly env?: Readonly<Record<string, string | undefined>>
  readonly cwd?: string
  /** Start it in its own terminal session, so that Ctrl-C does not reach it and it cannot ask for a password. Default: false. */
  readonly detached?: boolean
  /** Receives its stderr as it comes. Error messages quote the end of it either way. */
  readonly onStderr?: (bytes: Uint8Array) => void
  /** Milliseconds between closing its stdin and SIGTERM. The default is 12,000, which `rexd` may need. */
  readonly graceMs?: number
}

class Tail {
  #bytes: Buffer = Buffer.alloc(0)

  push(chunk: Uint8Array): void {
    // A copy, so that a few bytes do not keep a whole chunk in memory.
    this.#bytes = Buffer.from(Buffer.concat([this.#bytes, chunk]).subarray(-MAX_STDERR_KEPT))
  }

  get text(): string {
    return quote(this.#bytes.toString('utf8'), MAX_STDERR_KEPT)
  }
}

class ChildTransport implements Transport {
  readonly #child: ChildProcessWithoutNullStreams
  readonly #options: StdioOptions
  readonly #bytes: ByteTransport
  readonly #stderr = new Tail()
  readonly #exited = new AbortController()
  readonly #closed = new AbortController()

  constructor(child: ChildProcessWithoutNullStreams, options: StdioOptions, events: TransportEvents) {
    this.#child = child
    this.#options = options
    child.once('exit', () => this.#exited.abort())
    child.once('close', () => this.#closed.abort())
    // A failed write or signal means that the child is gone, which its exit reports.
    child.on('error', () => undefined)
    child.stderr.on('error', () => undefined)
    child.stderr.on('data', (chunk: Buffer) => {
      this.#stderr.push(chunk)
      options.onStderr?.(chunk)
    })
    const onClosed = (error: Error | null): void => void this.#emit(error, events)
    const onMessage = (text: string): void => events.onMessage(text)
    this.#bytes = new ByteTransport({ readable: child.stdout, writable: child.stdin }, { onMessage, onClosed })
  }

  send(text: string): void | Promise<void> {
    return this.#bytes.send(text)
  }

  pause(): void {
    this.#bytes.pause()
  }

  resume(): void {
    this.#bytes.resume()
  }

  /** Closes stdin, which asks the child to end. Sends SIGTERM after the grace period and SIGKILL after another. */
  async close(): Promise<void> {
    this.#bytes.end()
    await pause(this.#options.graceMs ?? CLOSE_GRACE_MS, this.#exited.signal)
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      if (this.#exited.signal.aborted) break
      this.#child.kill(signal)
      await pause(CLOSE_KILL_MS, this.#exited.signal)
    }
    // A process that it left may hold the streams. For example, ssh with ControlPersist keeps stderr.
    this.#bytes.destroy()
    this.#child.stderr.destroy()
  }

  /** The exit status is known a moment after the output has ended. */
  async #emit(error: Error | null, events: TransportEvents): Promise<void> {
    await pause(DRAIN_MS, this.#closed.signal)
    const { exitCode, signalCode } = this.#child
    const how =
      signalCode !== null
        ? `was ended by ${signalCode}`
        : exitCode !== null
          ? `ended with status ${exitCode}`
          : (error?.message ?? 'closed its output')
    const said = this.#stderr.text
    events.onClosed(
      new Error(`${nameOf(this.#options)} ${how}${said === '' ? '' : `: ${said}`}`, error === null ? undefined : { cause: error }),
    )
  }
}

const nameOf = ({ command }: StdioOptions): string => quote(command.join(' '))

/** REXD over the stdin and stdout of a child process, such as a `rexd` of this host, or ssh to another. Each opening starts it again. */
export const stdio = (options: StdioOptions): TransportFactory => {
  const [file, ...args] = options.command
  if (file === undefined) throw new TypeError('command: names at least the program')
  const { cwd, detached = false, env = process.env } = options
  const open = async (events: TransportEvents): Promise<Transport> => {
    const child = spawn(file, args, { stdio: 'pipe', detached, env: { ...env }, ...(cwd === undefined ? {} : { cwd }) })
    try {
      await once(child, 'spawn')
    } catch (error) {
      throw new Error(`${nameOf(options)} cannot be started: ${textOf(error)}`, { cause: error })
    }
    return new ChildTransport(child, options, events)
  }
  return { name: nameOf(options), again: true, keepsSessions: false, open }
}
