import { setImmediate as nextTurn } from 'node:timers/promises'
import { type Clock, NamedTimers, type Timer } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import { equalBytes } from '../../identity/hash.ts'
import { verifyAgent } from '../../identity/signing.ts'
import type { StdinSink } from '../../process/streams.ts'
import {
  MAX_TERMINAL_FRAMES_UNACKED,
  MAX_TERMINAL_UNACKED,
  TERMINAL_FRAMES_PER_SECOND,
  TERMINAL_FRAME_BURST,
  TERMINAL_RESIZE_MS,
} from '../../protocol/limits/terminal.ts'
import { ACK_EVERY_MS } from '../../protocol/limits/wire.ts'
import type { ExecFrame } from '../../protocol/wire/exec.ts'
import {
  EXEC_TERMINAL_INPUT_DOMAIN,
  type ExecTerminalInput,
  type WireTerminalSize,
  execTerminalInput,
} from '../../protocol/wire/terminal.ts'
import type { Program } from './execution.ts'

/** The agent that may type, and the request that its input must name. */
export interface TerminalInputSigner {
  readonly publicKey: Uint8Array
  readonly requestSha256: Uint8Array
}

export interface TerminalFeedInit extends TerminalInputSigner {
  /** Frames below `next` were taken by the program. */
  onAck(next: number): void
  /** Called once if a signature does not fit. */
  onViolated(what: string): void
}

type InputFrame = Pick<Extract<ExecFrame, { type: 'terminal_input' }>, 'seq' | 'body' | 'signature'>

interface Waiting extends Pick<InputFrame, 'body' | 'signature'> {
  readonly input: ExecTerminalInput
}

/** Changes the size of a terminal at most every TERMINAL_RESIZE_MS, and always to the last size. */
class Resizer {
  readonly #clock: Clock
  readonly #timers: NamedTimers<'next'>
  #program: Pick<Program, 'resize'> | null = null
  #size: WireTerminalSize | null = null
  #resizedAt = Number.NEGATIVE_INFINITY

  constructor(deps: { readonly clock: Clock }) {
    this.#clock = deps.clock
    this.#timers = new NamedTimers(deps)
  }

  attach(program: Pick<Program, 'resize'>): void {
    this.#program = program
    this.#apply()
  }

  set(size: WireTerminalSize): void {
    this.#size = size
    const left = this.#resizedAt + TERMINAL_RESIZE_MS - this.#clock.monotonic()
    if (left <= 0) this.#apply()
    else this.#timers.set('next', left, () => this.#apply())
  }

  stop(): void {
    this.#program = null
    this.#timers.cancelAll()
  }

  #apply(): void {
    if (this.#program === null || this.#size === null) return
    const { columns: cols, rows } = this.#size
    this.#size = null
    this.#resizedAt = this.#clock.monotonic()
    this.#program.resize({ cols, rows })
  }
}

/**
 * Input of a terminal, in order and at the speed of the program. Nothing is typed before the signature of the requester's executor process
 * is verified, because the carrier may be captured.
 */
export class TerminalFeed {
  /** No approver can see what will be typed. */
  readonly whole = null
  readonly #clock: Clock
  readonly #init: TerminalFeedInit
  readonly #bucket: TokenBucket
  readonly #resizer: Resizer
  readonly #queue: Waiting[] = []
  #sink: StdinSink | null = null
  #next = 0
  /** Received bytes that the program has not taken. */
  #bytes = 0
  /** Bytes that it has taken since the last acknowledgement. */
  #takenBytes = 0
  #ackTimer: Timer | null = null
  #isPumping = false
  #stopped = false
  #taken = 0
  #acked = 0

  constructor(deps: { readonly clock: Clock }, init: TerminalFeedInit) {
    this.#clock = deps.clock
    this.#init = init
    this.#bucket = new TokenBucket(deps, { burst: TERMINAL_FRAME_BURST, perSecond: TERMINAL_FRAMES_PER_SECOND })
    this.#resizer = new Resizer(deps)
  }

  get received(): number {
    return this.#next
  }

  get acked(): number {
    return this.#acked
  }

  /** Throws `malformed` if the peer broke the protocol. */
  accept({ seq, body, signature }: InputFrame): void {
    if (this.#stopped) return
    if (seq !== this.#next) throw new AppError('malformed', `terminal input ${seq} instead of ${this.#next}`)
    const input = execTerminalInput.decode(body)
    if (input.seq !== seq) throw new AppError('malformed', `terminal input ${seq} was signed as ${input.seq}`)
    if (!equalBytes(input.request_sha256, this.#init.requestSha256))
      throw new AppError('malformed', 'terminal input was signed for another request')
    if (input.data.length === 0 && input.size === null) throw new AppError('malformed', 'terminal input without data')
    if (this.#bytes + input.data.length > MAX_TERMINAL_UNACKED || this.#next - this.#acked >= MAX_TERMINAL_FRAMES_UNACKED)
      throw new AppError('malformed', 'more terminal input than the window')
    this.#next += 1
    this.#bytes += input.data.length
    this.#queue.push({ input, body, signature })
    this.#pump()
  }

  /** The program has started. */
  attach(sink: StdinSink, program: Pick<Program, 'resize'>): void {
    this.#sink = sink
    this.#resizer.attach(program)
    this.#pump()
  }

  stop(): void {
    this.#stopped = true
    this.#queue.length = 0
    this.#resizer.stop()
    this.#ackTimer?.cancel()
    this.#ackTimer = null
  }

  #pump(): void {
    if (this.#sink !== null && !this.#isPumping && !this.#stopped) void this.#typeAll(this.#sink)
  }

  /** Verifies one frame per turn of the event loop, so that other runs are served between two. */
  async #typeAll(sink: StdinSink): Promise<void> {
    this.#isPumping = true
    for (let one = this.#queue.shift(); one !== undefined; one = this.#queue.shift()) {
      await this.#admitted()
      if (this.#stopped) break
      if (!verifyAgent(this.#init.publicKey, EXEC_TERMINAL_INPUT_DOMAIN, one.body, one.signature)) {
        this.stop()
        this.#init.onViolated('terminal input with a wrong signature')
        break
      }
      const { data, size, seq } = one.input
      if (size !== null) this.#resizer.set(size)
      if (data.length > 0) await sink.write(data)
      if (this.#stopped) break
      this.#took(seq, data.length)
      await nextTurn()
    }
    this.#isPumping = false
  }

  async #admitted(): Promise<void> {
    while (!this.#stopped && !this.#bucket.take())
      await new Promise<void>((resolve) => this.#clock.setTimeout(resolve, 1000 / TERMINAL_FRAMES_PER_SECOND))
  }

  #took(seq: number, bytes: number): void {
    this.#taken = seq + 1
    this.#bytes -= bytes
    this.#takenBytes += bytes
    const frames = this.#taken - this.#acked
    if (frames >= MAX_TERMINAL_FRAMES_UNACKED / 4 || this.#takenBytes >= MAX_TERMINAL_UNACKED / 4) this.#ack()
    else this.#ackTimer ??= this.#clock.setTimeout(() => this.#ack(), ACK_EVERY_MS)
  }

  #ack(): void {
    this.#ackTimer?.cancel()
    this.#ackTimer = null
    if (this.#stopped) return
    this.#takenBytes = 0
    this.#acked = this.#taken
    this.#init.onAck(this.#taken)
  }
}
