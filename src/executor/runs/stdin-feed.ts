import type { Clock, Timer } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { equalBytes, newSha256 } from '../../identity/hash.ts'
import type { StdinSink } from '../../process/streams.ts'
import { ACK_EVERY_BYTES, ACK_EVERY_MS, MAX_FRAME_DATA, MAX_PIECES_UNACKED, STDIN_PIECE_BYTES } from '../../protocol/limits/wire.ts'
import type { SignedStdin } from '../../protocol/wire/exec.ts'

export interface StdinFeedInit {
  /** Stdin as the Request signed it. */
  readonly announced: SignedStdin
  /** Frames below `next` were taken by the program or dropped. */
  onAck(next: number): void
  /** Called once if the bytes differ from the announced ones. */
  onMismatch(): void
}

/** Frames that wait for the program; small ones share an entry. */
interface Waiting {
  data: Uint8Array
  /** Number of the last frame in it. */
  seq: number
  eof: boolean
}

/** Smaller waiting frames are joined, so that many tiny ones do not cost memory. */
const JOIN_BELOW = 4096

/** Joins a small frame to the last entry. `from`: first entry that may grow. */
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

type PieceVerdict = 'incomplete' | 'signed' | 'wrong'

/** Checks stdin against the signed hashes, piece by piece. */
class PieceCheck {
  readonly #signed: SignedStdin
  #hash = newSha256()
  #received = 0
  /** Number of verified pieces. */
  #fitting = 0

  constructor(signed: SignedStdin) {
    this.#signed = signed
  }

  /** Throws `malformed` for bytes of two pieces. */
  take(data: Uint8Array, eof: boolean): PieceVerdict {
    const { len, pieces } = this.#signed
    this.#received += data.length
    if (this.#received > len || (eof && this.#received < len)) return 'wrong'
    const end = Math.min((this.#fitting + 1) * STDIN_PIECE_BYTES, len)
    if (this.#received > end) throw new AppError('malformed', 'a stdin frame with bytes of two pieces')
    this.#hash.update(data)
    const expected = pieces[this.#fitting]
    // All pieces are verified: this is a separate end of file.
    if (expected === undefined) return 'signed'
    if (this.#received < end) return 'incomplete'
    if (!equalBytes(this.#hash.digest(), expected)) return 'wrong'
    this.#hash = newSha256()
    this.#fitting += 1
    return 'signed'
  }
}

/**
 * Stdin of a peer: in order, exactly as announced, at the speed of the program. The program receives no byte before the hash of its piece
 * is verified, because the carrier may be captured.
 */
export class StdinFeed {
  readonly #clock: Clock
  readonly #init: StdinFeedInit
  readonly #check: PieceCheck
  /** Frames of an incomplete piece. */
  readonly #held: Waiting[] = []
  /** Frames that may go to the program. */
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

  /** All of stdin if it is one piece that arrived before the program started: for an approver. */
  get whole(): Promise<Uint8Array> {
    return this.#whole.promise
  }

  get received(): number {
    return this.#next
  }

  get acked(): number {
    return this.#acked
  }

  /** Throws `malformed` if the peer broke the protocol. */
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

  /** The program has started: sends it all frames. */
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

  /** Stores a frame until its piece is verified and the program has taken it. */
  #keep(frame: Waiting, free: boolean): void {
    const idle = this.#queue.length === 0
    this.#waitingBytes += frame.data.length
    // The first entry may be on its way into the pipe.
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
