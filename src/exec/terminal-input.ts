import type { Clock } from '../base/clock.ts'
import { isAppError } from '../base/errors.ts'
import { Condition } from '../base/wait-queue.ts'
import { MAX_TERMINAL_DATA, MAX_TERMINAL_FRAMES_UNACKED, MAX_TERMINAL_UNACKED } from '../protocol/limits/terminal.ts'
import type { WireTerminalSize } from '../protocol/wire/terminal.ts'
import type { SignedBody } from './exit.ts'
import type { TerminalInput } from './run-spec.ts'

/** Pause before input is signed again after a refusal, because there was too much at once. */
const SIGN_AGAIN_MS = 100

/** The content of one frame. */
export interface TerminalFrame {
  readonly data: Uint8Array
  readonly size: WireTerminalSize | null
}

interface SentFrame extends TerminalFrame {
  readonly signed: SignedBody
}

export interface TerminalInputSenderComponents {
  readonly source: AsyncIterable<TerminalInput>
  readonly clock: Clock
  /** Lets the executor process sign a frame for the present request. */
  readonly sign: (seq: number, frame: TerminalFrame) => Promise<SignedBody>
  /** If it returns false, the peer is slow, and the caller must wait for `drained`. */
  readonly send: (seq: number, signed: SignedBody) => boolean
  readonly drained: () => Promise<void>
}

/** Input that was read and not signed. */
class TypedAhead {
  #parts: Uint8Array[] = []
  #size: WireTerminalSize | null = null
  bytes = 0

  get isEmpty(): boolean {
    return this.bytes === 0 && this.#size === null
  }

  add(input: TerminalInput): void {
    if (!('data' in input)) {
      this.#size = { columns: input.columns, rows: input.rows }
      return
    }
    this.#parts.push(input.data)
    this.bytes += input.data.length
  }

  /** Puts frames before everything else. A later size stays. */
  putBack(frames: readonly TerminalFrame[]): void {
    for (const { size } of frames.toReversed()) this.#size ??= size
    this.#parts.unshift(...frames.map(({ data }) => data))
    this.bytes += frames.reduce((sum, { data }) => sum + data.length, 0)
  }

  take(max: number): TerminalFrame {
    const all = this.#parts.length === 1 ? this.#parts[0]! : Buffer.concat(this.#parts)
    const data = all.subarray(0, max)
    const size = this.#size
    this.#parts = data.length === all.length ? [] : [all.subarray(data.length)]
    this.#size = null
    this.bytes -= data.length
    return { data, size }
  }
}

/**
 * Sends what is typed into a terminal, in frames that the executor process signs one after another. What is typed during a signature joins
 * the next frame. At most MAX_TERMINAL_UNACKED bytes are ahead of the acknowledgements.
 */
export class TerminalInputSender {
  readonly #components: TerminalInputSenderComponents
  readonly #changed = new Condition()
  readonly #ahead = new TypedAhead()
  /** Sent, unacknowledged frames. The first has the number `#acked`. */
  readonly #kept: SentFrame[] = []
  #acked = 0
  #nextSeq = 0
  #unacked = 0
  /** Increased when the request was signed again, because earlier signatures do not fit it. */
  #request = 0
  #stopped = false
  /** The frame that is being signed. */
  #signing: TerminalFrame | null = null
  /** Ends the present waits when `stop` is called. */
  readonly #waits = new Set<() => void>()

  constructor(components: TerminalInputSenderComponents) {
    this.#components = components
  }

  /** Resolves at the end of the source, whose input may not be sent yet, or when `stop` was called. Throws the errors of source and signer. */
  async run(): Promise<void> {
    const sending = this.#sendAll()
    await Promise.race([sending, this.#read()])
  }

  /** Handles an acknowledgement of all frames below `seq`. Returns false if it is invalid. */
  ack(seq: number): boolean {
    if (seq < this.#acked || seq > this.#nextSeq) return false
    for (const { data } of this.#kept.splice(0, seq - this.#acked)) this.#unacked -= data.length
    this.#acked = seq
    this.#changed.notifyAll()
    return true
  }

  /** Sends all frames from `seq` again. Returns false if that is invalid. */
  resume(seq: number): boolean {
    if (seq < this.#acked || seq > this.#nextSeq) return false
    for (const [index, { signed }] of this.#kept.slice(seq - this.#acked).entries()) this.#components.send(seq + index, signed)
    return true
  }

  /** The request was signed again and has reached the target for the first time. All input is signed again for it. */
  restart(): boolean {
    if (this.#acked > 0) return false
    this.#request += 1
    this.#ahead.putBack([...this.#kept.splice(0), ...(this.#signing === null ? [] : [this.#signing])])
    this.#signing = null
    this.#nextSeq = 0
    this.#unacked = 0
    this.#changed.notifyAll()
    return true
  }

  stop(): void {
    this.#stopped = true
    for (const wake of this.#waits) wake()
    this.#changed.notifyAll()
  }

  /** Reads ahead at most the window, so that a paste waits at its source. */
  async #read(): Promise<void> {
    const inputs = this.#components.source[Symbol.asyncIterator]()
    try {
      for (;;) {
        const next = await this.#unlessStopped(inputs.next())
        if (next === null || next.done === true) return
        this.#ahead.add(next.value)
        this.#changed.notifyAll()
        while (this.#ahead.bytes >= MAX_TERMINAL_UNACKED && !this.#stopped) await this.#changed.wait()
      }
    } finally {
      // Not awaited, because the source may be in the middle of a read.
      void Promise.resolve(inputs.return?.()).catch(() => undefined)
    }
  }

  async #sendAll(): Promise<void> {
    while (!this.#stopped) {
      const room = MAX_TERMINAL_UNACKED - this.#unacked
      if (this.#ahead.isEmpty || room <= 0 || this.#kept.length >= MAX_TERMINAL_FRAMES_UNACKED) await this.#changed.wait()
      else await this.#sendNext(this.#ahead.take(Math.min(MAX_TERMINAL_DATA, room)))
    }
  }

  async #sendNext(frame: TerminalFrame): Promise<void> {
    const request = this.#request
    this.#signing = frame
    const signed = await this.#sign(frame)
    // After a restart, the frame was put back.
    if (this.#stopped || request !== this.#request) return
    this.#signing = null
    this.#kept.push({ ...frame, signed })
    this.#unacked += frame.data.length
    const { send, drained } = this.#components
    if (!send(this.#nextSeq++, signed) && !this.#stopped) await this.#unlessStopped(drained())
  }

  async #sign(frame: TerminalFrame): Promise<SignedBody> {
    const { clock, sign } = this.#components
    for (;;) {
      try {
        return await sign(this.#nextSeq, frame)
      } catch (error) {
        if (!isAppError(error, 'rate_limited') || this.#stopped) throw error
        await new Promise<void>((resolve) => clock.setTimeout(resolve, SIGN_AGAIN_MS))
      }
    }
  }

  /** Returns null if `stop` was called. Each wait has its own promise, so that reactions do not accumulate on one. */
  async #unlessStopped<T>(work: Promise<T>): Promise<T | null> {
    if (this.#stopped) return null
    const { promise, resolve } = Promise.withResolvers<null>()
    const wake = (): void => resolve(null)
    this.#waits.add(wake)
    try {
      return await Promise.race([promise, work])
    } finally {
      this.#waits.delete(wake)
    }
  }
}
