import type { Readable, Writable } from 'node:stream'
import { aborted } from '../../base/abort.ts'
import { inOneWrite } from '../../base/buffers.ts'
import { Condition } from '../../base/wait-queue.ts'
import { MAX_RPC_BACKLOG, MAX_RPC_MESSAGE } from '../../protocol/limits/rexd.ts'
import { type Line, LineSplitter } from '../../protocol/lines.ts'
import { SkippedId } from '../../protocol/skipped-id.ts'
import { utf8Text } from '../../protocol/text.ts'
import { type RpcConnectionComponents, RpcConnection } from './connection.ts'
import { parseBytes, tooLong, written } from './message.ts'
import type { MethodsInit } from './session-methods.ts'
import { RpcSessions } from './sessions.ts'

export interface StdioComponents extends Omit<RpcConnectionComponents, 'sessions' | 'send' | 'metrics'> {
  readonly input: Readable
  readonly output: Writable
}

/** Writes one JSON object per line. Returns a promise while the client is behind. */
class LineWriter {
  readonly #output: Writable
  readonly #drained = new Condition()
  #gone = false

  constructor(output: Writable, onGone: () => void) {
    this.#output = output
    const gone = (): void => {
      if (this.#gone) return
      this.#gone = true
      this.#drained.notifyAll()
      onGone()
    }
    output.on('error', gone)
    output.on('close', gone)
    output.on('drain', () => this.#drained.notifyAll())
  }

  readonly send = (message: object | string): void | Promise<void> => {
    if (this.#gone || this.#output.destroyed) return undefined
    inOneWrite(this.#output)
    this.#output.write(written(message, '\n'))
    if (this.#output.writableLength <= MAX_RPC_BACKLOG) return undefined
    return this.#drained.wait()
  }

  /** Resolves when everything was taken or the output is closed. */
  async flushed(): Promise<void> {
    if (this.#gone || this.#output.destroyed || this.#output.writableLength === 0) return
    await new Promise<void>((resolve) => {
      this.#output.write('', () => resolve())
      this.#output.once('close', () => resolve())
    })
  }
}

/**
 * REXD over a pair of byte streams. Resolves when the input has ended, all calls are answered and all processes are over; or at once if the
 * output is closed or the signal aborts.
 */
export const serveLines = async (streams: StdioComponents, init: Omit<MethodsInit, 'resumes'>, signal: AbortSignal): Promise<void> => {
  const { input, output, executor, clock, log } = streams
  const left = new AbortController()
  const writer = new LineWriter(output, () => left.abort())
  const sessions = new RpcSessions({ executor, clock })
  const deps = { executor, clock, log, sessions, metrics: null, send: writer.send }
  const connection = new RpcConnection(deps, { ...init, resumes: false })
  const stopped = AbortSignal.any([left.signal, signal])
  stopped.addEventListener('abort', () => input.destroy(), { once: true })
  try {
    // If the client does not read answers, no more input is read, so the abort must not wait for it.
    await Promise.race([readLines(input, connection), aborted(stopped)])
    if (!stopped.aborted) await Promise.race([connection.idle(), aborted(stopped)])
  } catch (error) {
    // The signal destroyed the input.
    if (!stopped.aborted) throw error
  } finally {
    // Ends all processes, which answers every `exec.wait`.
    await connection.close()
    await Promise.race([connection.settled(), aborted(stopped)])
    if (!stopped.aborted) await Promise.race([writer.flushed(), aborted(stopped)])
  }
}

const readLines = async (input: Readable, connection: RpcConnection): Promise<void> => {
  const skipped = new SkippedId()
  const lines = new LineSplitter({ max: MAX_RPC_MESSAGE, onSkipped: (part) => skipped.add(part) })
  const take = (line: Line): void | Promise<void> =>
    line === 'too_long' ? connection.take(tooLong(MAX_RPC_MESSAGE, skipped.take())) : takeLine(line, connection)
  for await (const chunk of input as AsyncIterable<Buffer>) for (const line of lines.push(chunk)) await take(line)
  const rest = lines.rest()
  if (rest !== null) await take(rest)
}

const takeLine = (line: Buffer, connection: RpcConnection): void | Promise<void> => {
  if (isBlank(line)) return undefined
  return connection.take(parseBytes(line))
}

/** A line that begins with a visible ASCII character, as JSON does, is not decoded for this check. */
const isBlank = (line: Buffer): boolean => {
  const [first = 0] = line
  return (first <= 0x20 || first >= 0x80) && utf8Text(line)?.trim() === ''
}
