import type { Params } from '../protocol/rexd/methods.ts'
import type { ProcessStatus } from '../protocol/rexd/results.ts'
import { toBase64 } from '../protocol/text.ts'
import type { Connection } from './connection.ts'
import { type Data, type DataSource, toBytes, untilAborted } from './data.ts'
import { RexdError, RexdProtocolError } from './errors.ts'
import { type CamelCase, camelCase, present } from './fields.ts'
import { resultOf } from './incoming.ts'
import { type OutputChunk, RemoteOutput } from './output.ts'
import type { ClampedPreference, RunPlacement, ProcessExit, ProcessRecord, RanOn } from './process-record.ts'
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

export interface WaitOptions extends CallOptions {
  /** Milliseconds; 0 asks only how it stands. For ever unless told. */
  readonly timeoutMs?: number
}

export interface ProgramComponents {
  readonly connection: Connection
  readonly record: ProcessRecord
  readonly input: ProcessInput
}

/** What programs have in common, on pipes and on a terminal. */
export class RemoteProgram implements RunPlacement {
  /** Its `process_id`. */
  readonly id: string
  /** ISO 8601, by the server's clock. */
  readonly startedAt: string
  readonly ranOn: RanOn | null
  readonly cutWishes: readonly ClampedPreference[]
  /**
   * How it ended, when all that it wrote has come. Rejects with `RexdError` where it could not be started or was ended for
   * its output, `RexdDisconnected` where its session is lost, `RexdGap` and `RexdProtocolError` where something of its
   * output is missing, or the reason of the signal that it was started with.
   */
  readonly exited: Promise<ProcessExit>
  protected readonly connection: Connection
  protected readonly record: ProcessRecord
  protected readonly input: ProcessInput

  constructor({ connection, record, input }: ProgramComponents) {
    this.connection = connection
    this.record = record
    this.input = input
    this.id = record.init.process_id
    this.startedAt = record.init.started_at
    this.exited = record.exited
    this.ranOn = record.place.ranOn
    this.cutWishes = record.place.cutWishes
  }

  /**
   * Writes to its stdin, which takes `stdinOpen`, or types on its terminal; resolves when the server has it all, which is
   * at the program's own speed. Writes wait for those before them. Rejects with `RexdError` `conflict` when stdin is closed
   * or the program over. After a write that was aborted, or broken off with the connection, nobody knows how much was
   * taken, so that nothing more can be written to its stdin; on a terminal more can be typed.
   */
  async write(data: Data, options: CallOptions = {}): Promise<void> {
    return this.input.write(data, options)
  }

  /** Sends it a signal, as `KILL` or `SIGKILL`, `TERM` unless told; false: it was over already. */
  async kill(signal?: string, options: CallOptions = {}): Promise<boolean> {
    return this.record.kill(signal, options)
  }

  /** How it stands when it has ended or the time is up. Whoever reads its output needs `exited` only. */
  async wait({ timeoutMs, signal }: WaitOptions = {}): Promise<CamelCase<ProcessStatus>> {
    const { ids, link } = this.record
    const params = present<Params<'exec.wait'>>({ ...ids, timeout_ms: timeoutMs })
    const accept = (result: unknown): CamelCase<ProcessStatus> => camelCase(resultOf(result, 'exec.wait', ['status']))
    return this.connection.request({ method: 'exec.wait', params, scope: link, signal, accept })
  }
}

/**
 * A program that runs on the server. Iterate it for all of its output in the order in which it came, or read `stdout`
 * and `stderr`: each stream once. What is not read yet is kept up to 1 MiB; then nothing more is read from the connection
 * and the program is held, as are the other programs of the same connection, until it is read or discarded. So read both
 * streams at once, or discard the one that is of no interest. While an answer to a call is waited for, up to 16 MiB are kept.
 */
export class RemoteProcess extends RemoteProgram implements AsyncIterable<OutputChunk> {
  readonly stdout: RemoteOutput
  readonly stderr: RemoteOutput

  constructor(components: ProgramComponents) {
    super(components)
    this.stdout = new RemoteOutput(this.record, { name: 'stdout' })
    this.stderr = new RemoteOutput(this.record, { name: 'stderr' })
  }

  [Symbol.asyncIterator](): AsyncGenerator<OutputChunk, void, undefined> {
    return this.record.queue.read('stdout', 'stderr')
  }

  /** Closes its stdin behind what was written. */
  async end(options: CallOptions = {}): Promise<void> {
    return this.input.end(options)
  }

  /** Nobody will read what it writes; `exited` tells how it ends all the same. */
  discard(): void {
    this.stdout.discard()
    this.stderr.discard()
  }
}

/**
 * A program on a terminal of the server. Iterate it, or read `output`, once: what it and whatever it started wrote on the
 * terminal, as one stream of bytes. What is not read holds it, as it does a `RemoteProcess`.
 */
export class RemoteTerminal extends RemoteProgram implements AsyncIterable<Uint8Array> {
  readonly output: RemoteOutput
  readonly #of: { readonly session_id: string; readonly pty_id: string }

  constructor(components: ProgramComponents) {
    super(components)
    this.#of = { session_id: this.record.link.id, pty_id: this.record.init.pty_id! }
    this.output = new RemoteOutput(this.record, { name: 'stdout' })
  }

  [Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    return this.output[Symbol.asyncIterator]()
  }

  /** Gives it another size, in characters; the program hears of it by SIGWINCH. */
  async resize({ cols, rows }: { readonly cols: number; readonly rows: number }, { signal }: CallOptions = {}): Promise<void> {
    await this.connection.request({ method: 'pty.resize', params: { ...this.#of, cols, rows }, ...this.#how('pty.resize', signal) })
  }

  /** SIGHUP to everything on it; what has not gone after 5 s is killed, unless `kill` is false. `exited` tells when it is over. */
  async close({ kill = true, signal }: CallOptions & { readonly kill?: boolean } = {}): Promise<void> {
    await this.connection.request({ method: 'pty.close', params: { ...this.#of, kill }, ...this.#how('pty.close', signal) })
  }

  #how(method: 'pty.resize' | 'pty.close', signal: AbortSignal | undefined) {
    return { scope: this.record.link, signal, accept: (result: unknown) => resultOf(result, method, ['ok']) }
  }
}
