import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { LocalArguments, LocalExecutorClient } from '../executor/port/local-client.ts'
import type { LocalFrame, LocalOutcome } from '../executor/port/local-messages.ts'
import type { RequestId } from '../protocol/ids.ts'
import { MAX_FRAME_DATA, MAX_STDIN_UNACKED } from '../protocol/limits.ts'
import { NO_BYTES } from '../protocol/schema.ts'
import { Delivery } from './delivery.ts'
import type { RunSink } from './run-spec.ts'

export interface LocalRunComponents {
  readonly client: LocalExecutorClient
  readonly clock: Clock
  /** What the run writes; a promise holds the program. */
  readonly sink: RunSink
}

/** What of stdin is on its way: the number of each frame, and its bytes. */
class Sent {
  readonly #frames: { readonly seq: number; readonly bytes: number }[] = []
  #next: number
  #bytes = 0

  /** `first`: bytes that went with the command. */
  constructor(first: number) {
    this.#next = 0
    if (first > 0) this.take(first)
  }

  get room(): number {
    return Math.max(0, MAX_STDIN_UNACKED - this.#bytes)
  }

  take(bytes: number): number {
    const seq = this.#next++
    this.#frames.push({ seq, bytes })
    this.#bytes += bytes
    return seq
  }

  /** Everything below this number was taken by the program. */
  acknowledged(next: number): void {
    while (this.#frames[0] !== undefined && this.#frames[0].seq < next) this.#bytes -= this.#frames.shift()!.bytes
  }
}

/** A run on this host, asked for by one of its own doors. */
export class LocalRun {
  readonly #client: LocalExecutorClient
  readonly #delivery: Delivery
  readonly #sent: Sent
  readonly #begun = Promise.withResolvers<LocalOutcome | null>()
  readonly #ended = Promise.withResolvers<LocalOutcome | null>()
  readonly #number: number
  #requestId: RequestId = ''
  #startedAt = ''
  #cwd: string | null = null
  #caps = { timeout_ms: 0, max_output_bytes: 0 }
  #stdinOpen: boolean
  #outcome: LocalOutcome | null = null

  private constructor({ client, clock, sink }: LocalRunComponents, init: { input: boolean; sent: number }) {
    this.#client = client
    this.#stdinOpen = init.input
    this.#sent = new Sent(init.sent)
    const ack = (stdout: number, stderr: number): void =>
      void client.sendFrame(this.#number, { type: 'ack', request_id: this.#requestId, stdin: 0, stdout, stderr })
    this.#delivery = new Delivery({ sink, clock, ack, onSinkError: () => this.cancel() })
    this.#number = client.expectRun({ onFrame: (frame) => this.#receive(frame), onClosed: () => void this.#close() })
  }

  /** Throws what refuses it; then nothing is told to the sink. */
  static async start(components: LocalRunComponents, call: Omit<LocalArguments<'run_start'>, 'run'>): Promise<LocalRun> {
    const run = new LocalRun(components, { input: call.input, sent: call.stdin.length })
    try {
      const accepted = await components.client.call('run_start', { ...call, run: run.#number })
      run.#requestId = accepted.request_id
      run.#startedAt = accepted.started_at
      run.#cwd = accepted.cwd
      run.#caps = { timeout_ms: accepted.timeout_ms, max_output_bytes: accepted.max_output_bytes }
      return run
    } catch (error) {
      components.client.forgetRun(run.#number)
      throw error
    }
  }

  get requestId(): RequestId {
    return this.#requestId
  }

  /** ISO 8601. */
  get startedAt(): string {
    return this.#startedAt
  }

  /** Null: it runs on a target, which does not say. */
  get cwd(): string | null {
    return this.#cwd
  }

  /** What counts, where more was asked for: milliseconds, and bytes of both streams. */
  get caps(): { readonly timeout_ms: number; readonly max_output_bytes: number } {
    return this.#caps
  }

  /** Null when its program runs; how it ended where it never did. */
  get begun(): Promise<LocalOutcome | null> {
    return this.#begun.promise
  }

  /** Settles when all that it wrote was taken by the sink; null: the executor is gone, and nobody knows. */
  get ended(): Promise<LocalOutcome | null> {
    return this.#ended.promise
  }

  /** Takes what there is room for, from the beginning; answers how many bytes. Throws `conflict` when its stdin is closed. */
  input(data: Uint8Array, eof: boolean): number {
    if (!this.#stdinOpen || this.#outcome !== null) throw new AppError('conflict', 'its stdin is closed; start it with stdin_open: true')
    const taken = data.subarray(0, this.#sent.room)
    const whole = eof && taken.length === data.length
    for (let at = 0; at < taken.length; at += MAX_FRAME_DATA) this.#sendStdin(taken.subarray(at, at + MAX_FRAME_DATA), false)
    if (whole) this.#sendStdin(NO_BYTES, true)
    if (whole) this.#stdinOpen = false
    return taken.length
  }

  #sendStdin(data: Uint8Array, eof: boolean): void {
    const seq = this.#sent.take(data.length)
    this.#client.sendFrame(this.#number, { type: 'stdin', request_id: this.#requestId, seq, data, eof })
  }

  /** False: nothing is there to be told. Throws `bad_request` for what is no signal. */
  async signal(signal: string): Promise<boolean> {
    const { json } = await this.#client.call('run_signal', { run: this.#number, signal })
    return (JSON.parse(json) as { told: boolean }).told
  }

  async resize(size: { readonly cols: number; readonly rows: number }): Promise<void> {
    await this.#client.call('run_resize', { run: this.#number, ...size })
  }

  /** Closes its terminal: SIGHUP to everything on it, and SIGKILL after the grace. */
  async hangUp(): Promise<void> {
    await this.#client.call('run_hang_up', { run: this.#number })
  }

  /** SIGTERM, and SIGKILL after the grace. */
  cancel(): void {
    this.#client.sendFrame(this.#number, { type: 'cancel', request_id: this.#requestId })
  }

  #receive(frame: LocalFrame): void {
    const { request_id } = frame
    switch (frame.type) {
      case 'started':
        return this.#begun.resolve(null)
      case 'stdout':
      case 'stderr':
        return this.#delivery.push({ type: frame.type, request_id, seq: frame.seq, data: frame.data })
      case 'warning':
        return this.#delivery.push({ type: 'warning', request_id, kind: frame.kind, message: frame.message })
      case 'ack':
        return this.#sent.acknowledged(frame.stdin)
      case 'outcome':
        this.#outcome = frame
        return this.#begun.resolve(frame)
      default:
        throw new AppError('malformed', `${frame.type} from the executor`)
    }
  }

  async #close(): Promise<void> {
    this.#begun.resolve(this.#outcome)
    await this.#delivery.idle()
    this.#delivery.close()
    this.#ended.resolve(this.#outcome)
  }
}
