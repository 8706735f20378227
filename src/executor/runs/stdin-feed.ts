import type { Clock, Timer } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { equalBytes, newSha256 } from '../../identity/hash.ts'
import type { StdinSink } from '../../process/streams.ts'
import { ACK_EVERY_BYTES, ACK_EVERY_MS, MAX_FRAME_DATA, MAX_PIECES_UNACKED, STDIN_PIECE_BYTES } from '../../protocol/limits/wire.ts'
import type { SignedStdin } from '../../protocol/wire/exec.ts'

export interface StdinFeedInit {
  /** All of stdin, as the Request signed it. */
  readonly announced: SignedStdin
  /** Everything below this number was taken by the child or can only be dropped. */
  onAck(next: number): void
  /** The bytes are not those that were announced; once. */
  onMismatch(): void
}

/** Frames that wait for the child; small ones share an entry. */
interface Waiting {
  data: Uint8Array
  /** Number of the last frame in it. */
  seq: number
  eof: boolean
}

/** Below this, frames that wait are joined, so that a flood of tiny ones does not cost memory. */
const JOIN_BELOW = 4096

/**
 * Joins the frame to the last entry where both are small. `from`: the first entry that may be joined to.
 */
const append = (list: Waiting[], frame: Waiting, from: number): void => {
  const last = list.length > from ? list.at(-1) : undefined
  if (last === undefined || last.data.length + frame.data.length > JOIN_BELOW) {
    list.push(frame)
    return
  }
  last.data = Buffer.concat([last.data, frame.data])
  last.seq = frame.seq
  last.eof = frame.eof
}

/** What is known of the bytes so far: the piece that they belong to is not whole, is the signed one, or is not. */
type PieceVerdict = 'incomplete' | 'signed' | 'wrong'

/** Holds stdin against what the Request signed, piece by piece. */
class PieceCheck {
  readonly #signed: SignedStdin
  #hash = newSha256()
  #received = 0
  /** Pieces that are whole and fit. */
  #fitting = 0

  constructor(signed: SignedStdin) {
    this.#signed = signed
  }

  /** The next bytes. Throws `malformed` when they belong to two pieces. */
  take(data: Uint8Array, eof: boolean): PieceVerdict {
    const { len, pieces } = this.#signed
    this.#received += data.length
    if (this.#received > len || (eof && this.#received < len)) return 'wrong'
    const end = Math.min((this.#fitting + 1) * STDIN_PIECE_BYTES, len)
    if (this.#received > end) throw new AppError('malformed', 'a stdin frame with bytes of two pieces')
    this.#hash.update(data)
    const expected = pieces[this.#fitting]
    // All pieces fit already: this is the end, which came by itself.
    if (expected === undefined) return 'signed'
    if (this.#received < end) return 'incomplete'
    if (!equalBytes(this.#hash.digest(), expected)) return 'wrong'
    this.#hash = newSha256()
    this.#fitting += 1
    return 'signed'
  }
}

/**
 * What the peer sends as stdin: in order, exactly what it announced, at the speed of the child. Of what was
 * announced, the child gets no byte before the hash of its piece fits: whoever carries it here may be captured.
 */
export class StdinFeed {
  readonly #clock: Clock
  readonly #init: StdinFeedInit
  readonly #check: PieceCheck
  /** Of a piece that is not whole yet. */
  readonly #held: Waiting[] = []
  /** On their way to the child. */
  readonly #queue: Waiting[] = []
  readonly #whole = Promise.withResolvers<Uint8Array>()
  #sink: StdinSink | null = null
  #next = 0
  #waitingBytes = 0
  #complete = false
  #stopped = false
  #consumed = 0
  #acked = 0
  #unackedBytes = 0
  #ackTimer: Timer | null = null

  constructor(deps: { clock: Clock }, init: StdinFeedInit) {
    this.#clock = deps.clock
    this.#init = init
    this.#check = new PieceCheck(init.announced)
    if (init.announced.len === 0) this.#whole.resolve(new Uint8Array(0))
  }

  /** All of it, where it is one piece that has come before the child: for an approver. */
  get whole(): Promise<Uint8Array> {
    return this.#whole.promise
  }

  /** Everything below this number has come. */
  get received(): number {
    return this.#next
  }

  /** The last number that was acknowledged. */
  get acked(): number {
    return this.#acked
  }

  /** Throws `malformed` when the peer broke the protocol. */
  accept(frame: { seq: number; data: Uint8Array; eof: boolean }): void {
    if (this.#stopped) return
    const { seq, data, eof } = frame
    if (this.#complete || seq !== this.#next)
      throw new AppError('malformed', `stdin ${seq} instead of ${this.#complete ? 'none' : this.#next}`)
    if (data.length === 0 && !eof) throw new AppError('malformed', 'stdin without data')
    if (this.#waitingBytes + data.length > MAX_PIECES_UNACKED + MAX_FRAME_DATA)
      throw new AppError('malformed', 'more stdin than the window')
    this.#next += 1
    const verdict = this.#check.take(data, eof)
    if (verdict === 'wrong') {
      this.stop()
      this.#init.onMismatch()
      return
    }
    this.#complete = eof
    this.#keep({ data, seq, eof }, verdict === 'signed')
  }

  /** The child is there: what has come and what comes goes to it. */
  attach(sink: StdinSink): void {
    this.#sink = sink
    void this.#pump(sink)
  }

  stop(): void {
    this.#stopped = true
    this.#held.length = 0
    this.#queue.length = 0
    this.#ackTimer?.cancel()
    this.#ackTimer = null
  }

  /** Keeps a frame until its piece is verified and the child has taken it. */
  #keep(frame: Waiting, free: boolean): void {
    const idle = this.#queue.length === 0
    this.#waitingBytes += frame.data.length
    // The queue's first entry may be on its way into the pipe.
    if (free && this.#held.length === 0) append(this.#queue, frame, 1)
    else append(this.#held, frame, 0)
    if (!free) return
    this.#queue.push(...this.#held.splice(0))
    const { len } = this.#init.announced
    if (this.#sink === null && len <= STDIN_PIECE_BYTES && this.#waitingBytes === len)
      this.#whole.resolve(Buffer.concat(this.#queue.map((one) => one.data)))
    if (idle && this.#sink !== null) void this.#pump(this.#sink)
  }

  async #pump(sink: StdinSink): Promise<void> {
    for (let item = this.#queue[0]; item !== undefined; item = this.#queue[0]) {
      await sink.write(item.data)
      if (this.#stopped) return
      this.#queue.shift()
      if (item.eof) sink.end()
      this.#took(item)
    }
  }

  #took(item: Waiting): void {
    this.#waitingBytes -= item.data.length
    this.#unackedBytes += item.data.length
    this.#consumed = item.seq + 1
    if (item.eof || this.#unackedBytes >= ACK_EVERY_BYTES) this.#ack()
    else this.#ackTimer ??= this.#clock.setTimeout(() => this.#ack(), ACK_EVERY_MS)
  }

  #ack(): void {
    this.#ackTimer?.cancel()
    this.#ackTimer = null
    if (this.#stopped || this.#consumed === this.#acked) return
    this.#acked = this.#consumed
    this.#unackedBytes = 0
    this.#init.onAck(this.#consumed)
  }
}
