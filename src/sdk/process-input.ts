import { toBase64 } from '../protocol/text.ts'
import type { Connection } from './connection.ts'
import { type Data, type DataSource, toBytes, untilAborted } from './data.ts'
import { RexdError, RexdProtocolError } from './errors.ts'
import { resultOf } from './incoming.ts'
import type { ProcessRecord } from './process-record.ts'
import { type CallOptions, orAborted, pause } from './promises.ts'

/** One `exec.input`: half of what the server takes ahead of the program, so that there is seldom anything to send again. */
export const INPUT_CHUNK = 512 * 1024
/** … and to a program that took nothing of the last: it tells whether there is room again, and costs little to send again. */
export const INPUT_PROBE = 1024
/** A program that does not read: the first pause before it is asked again, and the longest. Nothing tells when it goes on. */
const INPUT_PAUSE_MS = 5
const MAX_INPUT_PAUSE_MS = 200

/** The program has closed its stdin, or is over. */
const STDIN_CLOSED = ['conflict', 'unknown_process']

/** stdin of one process, or what is typed on its terminal: one write after the other, each as fast as the program reads. */
export class ProcessInput {
  readonly #connection: Connection
  readonly #record: ProcessRecord
  #turn: Promise<unknown> = Promise.resolve()
  /** A write failed part way: how much of it the program took is not known, and no other may follow. */
  #broken: { readonly error: unknown } | null = null

  constructor(components: { connection: Connection; record: ProcessRecord }) {
    this.#connection = components.connection
    this.#record = components.record
  }

  /** Resolves when the server has all of it. Rejects with `RexdError` `conflict` when stdin is closed. */
  async write(data: Data, { signal }: CallOptions = {}): Promise<void> {
    const bytes = toBytes(data)
    return this.#inTurn(async () => this.#writeAll(bytes, signal), signal)
  }

  /** Nothing more comes. */
  async end({ signal }: CallOptions = {}): Promise<void> {
    return this.#inTurn(async () => this.#close(signal), signal)
  }

  /** Writes what a source gives for as long as the program takes it, before anything else is written. Rejects with the source's error. */
  async feed(source: DataSource, init: { end: boolean }): Promise<void> {
    return this.#inTurn(async () => {
      for await (const part of untilAborted(source, this.#record.over))
        if (!(await this.#offer(async () => this.#writeAll(toBytes(part), undefined)))) return
      if (init.end) await this.#offer(async () => this.#close(undefined))
    }, undefined)
  }

  /** False: the program takes no more. */
  async #offer(work: () => Promise<void>): Promise<boolean> {
    try {
      await work()
      return true
    } catch (error) {
      if (this.#record.over.aborted || (error instanceof RexdError && STDIN_CLOSED.includes(error.name))) return false
      throw error
    }
  }

  async #inTurn(work: () => Promise<void>, signal: AbortSignal | undefined): Promise<void> {
    const mine = this.#after(this.#turn, work, signal)
    this.#turn = mine.catch(() => undefined)
    return orAborted(mine, signal)
  }

  async #after(turn: Promise<unknown>, work: () => Promise<void>, signal: AbortSignal | undefined): Promise<void> {
    await turn
    signal?.throwIfAborted()
    if (this.#broken !== null) throw this.#broken.error
    try {
      await work()
    } catch (error) {
      // Who types on a terminal sees what has arrived; on a pipe a later write would hide the hole.
      if (this.#record.init.pty_id === null) this.#broken = { error }
      throw error
    }
  }

  async #close(signal: AbortSignal | undefined): Promise<void> {
    await this.#send(new Uint8Array(0), true, signal)
  }

  async #writeAll(bytes: Uint8Array, signal: AbortSignal | undefined): Promise<void> {
    let size = INPUT_CHUNK
    let wait = INPUT_PAUSE_MS
    for (let at = 0; at < bytes.length;) {
      const part = bytes.subarray(at, at + size)
      const taken = await this.#send(part, false, signal)
      at += taken
      size = taken === 0 ? INPUT_PROBE : INPUT_CHUNK
      if (taken > 0) wait = INPUT_PAUSE_MS
      if (taken === part.length) continue
      await pause(wait, this.#record.over)
      signal?.throwIfAborted()
      if (taken === 0) wait = Math.min(wait * 2, MAX_INPUT_PAUSE_MS)
    }
  }

  async #send(bytes: Uint8Array, eof: boolean, signal: AbortSignal | undefined): Promise<number> {
    const accept = (result: unknown): number => {
      const { accepted_bytes: taken } = resultOf(result, 'exec.input', ['accepted_bytes'])
      if (Number.isSafeInteger(taken) && taken >= 0 && taken <= bytes.length) return taken
      throw new RexdProtocolError(`input: ${taken} bytes taken of ${bytes.length}`)
    }
    const { ids, init, link } = this.#record
    const given = { data: toBase64(bytes), encoding: 'base64' } as const
    const how = { scope: link, signal, accept }
    if (init.pty_id === null) return this.#connection.request({ method: 'exec.input', params: { ...ids, ...given, eof }, ...how })
    return this.#connection.request({ method: 'pty.input', params: { session_id: link.id, pty_id: init.pty_id, ...given }, ...how })
  }
}
