import type { Params } from '../protocol/rexd/methods.ts'
import type { ProcessStatus } from '../protocol/rexd/results.ts'
import type { SessionNotice } from '../protocol/reasons.ts'
import { toBase64 } from '../protocol/text.ts'
import type { Connection } from './connection.ts'
import { type Data, type DataSource, toBytes, untilAborted } from './data.ts'
import { RexdError, RexdProtocolError } from './errors.ts'
import { type CamelCase, camelCase, present } from './fields.ts'
import { resultOf } from './incoming.ts'
import { type OutputChunk, RemoteOutput } from './output.ts'
import type { ClampedPreference, RunPlacement, ProcessExit, ProcessRecord, RanOn } from './process-record.ts'
import { type CallOptions, orAborted, pause } from './promises.ts'

/** Bytes of one `exec.input`. The server's buffer has room for two, so that little is sent again. */
export const INPUT_CHUNK = 512 * 1024
/** Bytes of one `exec.input` after the program did not read. They are enough to learn whether there is room, and cheap to repeat. */
export const INPUT_PROBE = 1024
/** First and longest pause before asking again, because no event says when a program reads again. */
const INPUT_PAUSE_MS = 5
const MAX_INPUT_PAUSE_MS = 200

/** Errors that mean that stdin is closed or the program has ended. */
const STDIN_CLOSED = ['conflict', 'unknown_process']

/** The stdin of a process or terminal. Writes are sequential, each as fast as the program reads. */
export class ProcessInput {
  readonly #connection: Connection
  readonly #record: ProcessRecord
  #turn: Promise<unknown> = Promise.resolve()
  /** A write failed midway. How much the program took is unknown, so no other write may follow. */
  #broken: { readonly error: unknown } | null = null

  constructor(components: { connection: Connection; record: ProcessRecord }) {
    this.#connection = components.connection
    this.#record = components.record
  }

  /** Resolves when the server has all of it. Rejects with `RexdError` `conflict` if stdin is closed. */
  async write(data: Data, { signal }: CallOptions = {}): Promise<void> {
    const bytes = toBytes(data)
    return this.#inTurn(async () => this.#writeAll(bytes, signal), signal)
  }

  /** Closes stdin. */
  async end({ signal }: CallOptions = {}): Promise<void> {
    return this.#inTurn(async () => this.#close(signal), signal)
  }

  /** Writes from a source while the program reads, before any other write. Rejects with the source's error. */
  async feed(source: DataSource, init: { end: boolean }): Promise<void> {
    return this.#inTurn(async () => {
      for await (const part of untilAborted(source, this.#record.over))
        if (!(await this.#offer(async () => this.#writeAll(toBytes(part), undefined)))) return
      if (init.end) await this.#offer(async () => this.#close(undefined))
    }, undefined)
  }

  /** False if the program reads no more. */
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
      // A user at a terminal sees what arrived. On a pipe, a later write would hide the gap.
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
  /** Milliseconds, by default without limit. 0 only asks for the state. */
  readonly timeoutMs?: number
}

export interface ProgramComponents {
  readonly connection: Connection
  readonly record: ProcessRecord
  readonly input: ProcessInput
}

/** The common part of programs on pipes and on terminals. */
export class RemoteProgram implements RunPlacement {
  /** Its `process_id`. */
  readonly id: string
  /** ISO 8601, by the server's clock. */
  readonly startedAt: string
  readonly ranOn: RanOn | null
  readonly cutWishes: readonly ClampedPreference[]
  /** Other readers of its output on the target: `session_recorded`, `session_watchable`. */
  readonly notices: readonly SessionNotice[]
  /**
   * How the program ended, after all of its output. Rejects with `RexdError` if it could not start or was ended for its output. Rejects
   * with `RexdDisconnected` if its session is lost, and with `RexdGap` or `RexdProtocolError` if output is missing. If its signal was
   * aborted, rejects with the signal's reason.
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
    this.notices = record.init.notices ?? []
  }

  /**
   * Writes to its stdin, which needs `stdinOpen`, or types on its terminal. Resolves when the server has all of it, as fast as the program
   * reads. Writes are sequential. Rejects with `RexdError` `conflict` if stdin is closed or the program has ended. After a write that was
   * aborted or lost its connection, the amount taken is unknown. Then stdin accepts no further writes, but a terminal does.
   */
  async write(data: Data, options: CallOptions = {}): Promise<void> {
    return this.input.write(data, options)
  }

  /** Sends a signal, such as `KILL` or `SIGKILL`. Default: `TERM`. False if it had ended. */
  async kill(signal?: string, options: CallOptions = {}): Promise<boolean> {
    return this.record.kill(signal, options)
  }

  /** Its state when it has ended or the timeout is over. A reader of its output only needs `exited`. */
  async wait({ timeoutMs, signal }: WaitOptions = {}): Promise<CamelCase<ProcessStatus>> {
    const { ids, link } = this.record
    const params = present<Params<'exec.wait'>>({ ...ids, timeout_ms: timeoutMs })
    const accept = (result: unknown): CamelCase<ProcessStatus> => camelCase(resultOf(result, 'exec.wait', ['status']))
    return this.connection.request({ method: 'exec.wait', params, scope: link, signal, accept })
  }
}

/**
 * A program on the server. Iterate it for all output in order, or read `stdout` and `stderr`, each once. Up to 1 MiB of unread output is
 * kept. Then the connection stops reading, and this and other programs of the connection block until you read or discard it. So read both
 * streams at once, or discard one. While a call waits for its answer, up to 16 MiB are kept.
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

  /** Closes its stdin after the pending writes. */
  async end(options: CallOptions = {}): Promise<void> {
    return this.input.end(options)
  }

  /** Drops its output. `exited` still reports its end. */
  discard(): void {
    this.stdout.discard()
    this.stderr.discard()
  }
}

/**
 * A program on a terminal of the server. Iterate it, or read `output`, once. Both give everything written to the terminal as one stream.
 * Unread output blocks it, as for a `RemoteProcess`.
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

  /** Sets the size in characters. The program receives SIGWINCH. */
  async resize({ cols, rows }: { readonly cols: number; readonly rows: number }, { signal }: CallOptions = {}): Promise<void> {
    await this.connection.request({ method: 'pty.resize', params: { ...this.#of, cols, rows }, ...this.#how('pty.resize', signal) })
  }

  /** Sends SIGHUP to everything on it, and kills what is left after 5 s, unless `kill` is false. `exited` reports the end. */
  async close({ kill = true, signal }: CallOptions & { readonly kill?: boolean } = {}): Promise<void> {
    await this.connection.request({ method: 'pty.close', params: { ...this.#of, kill }, ...this.#how('pty.close', signal) })
  }

  #how(method: 'pty.resize' | 'pty.close', signal: AbortSignal | undefined) {
    return { scope: this.record.link, signal, accept: (result: unknown) => resultOf(result, method, ['ok']) }
  }
}
