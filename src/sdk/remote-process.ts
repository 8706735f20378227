import type { ProcessStatus } from '../protocol/rexd-answers.ts'
import type { Params } from '../protocol/rexd-methods.ts'
import type { Connection } from './connection.ts'
import type { Data } from './data.ts'
import { type CamelCase, camelCase, present } from './fields.ts'
import { resultOf } from './incoming.ts'
import { type OutputChunk, RemoteOutput } from './output.ts'
import type { ProcessInput } from './process-input.ts'
import type { CutWish, Place, ProcessExit, ProcessRecord, RanOn } from './process-record.ts'
import type { CallOptions } from './promises.ts'

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
export class RemoteProgram implements Place {
  /** Its `process_id`. */
  readonly id: string
  /** ISO 8601, by the server's clock. */
  readonly startedAt: string
  readonly ranOn: RanOn | null
  readonly cutWishes: readonly CutWish[]
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
