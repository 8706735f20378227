import type { OutputName } from '../../protocol/reasons.ts'
import type { BufferPool } from '../../base/buffers.ts'
import { AppError } from '../../base/errors.ts'
import type { RequestId } from '../../protocol/ids.ts'
import {
  FIRST_UNACKED_PER_RUN,
  FRAME_COST,
  MAX_UNACKED_PER_RUN,
  MAX_UNACKED_TOTAL,
  MIN_UNACKED_PER_RUN,
} from '../../protocol/limits/wire.ts'
import { execFrame } from '../../protocol/wire/exec.ts'
import { NO_BYTES } from '../../protocol/wire/schema.ts'
import type { PeerStreamWriter } from './frames.ts'

/** Unacknowledged bytes of all runs together. */
export class UnackedTotal {
  #bytes = 0
  readonly #waiting = new Set<() => void>()

  get full(): boolean {
    return this.#bytes >= MAX_UNACKED_TOTAL
  }

  add(bytes: number): void {
    this.#bytes += bytes
  }

  remove(bytes: number): void {
    this.#bytes -= bytes
    if (this.full || this.#waiting.size === 0) return
    const waiting = [...this.#waiting]
    this.#waiting.clear()
    for (const resume of waiting) resume()
  }

  /** Calls `resume` once when there is room again. */
  whenRoom(resume: () => void): void {
    this.#waiting.add(resume)
  }

  cancel(resume: () => void): void {
    this.#waiting.delete(resume)
  }
}

/** Data of one frame. Its buffer returns to the pool when the frame is acknowledged and all of its writes have ended. */
class Frame {
  readonly data: Uint8Array
  /** Position among the frames of both streams. */
  readonly order: number
  readonly #frames: BufferPool | null
  #reads = 0
  #isDropped = false

  constructor(deps: { readonly frames: BufferPool | null }, init: { readonly data: Uint8Array; readonly order: number }) {
    this.#frames = deps.frames
    this.data = init.data
    this.order = init.order
  }

  /** Announces a write of the data. Call the returned function once, when the write has ended. */
  read(): () => void {
    this.#reads += 1
    return () => {
      this.#reads -= 1
      this.#release()
    }
  }

  /** The frame is acknowledged, or its reader is gone. Do not send it again. */
  drop(): void {
    this.#isDropped = true
    this.#release()
  }

  #release(): void {
    if (this.#isDropped && this.#reads === 0) this.#frames?.give(this.data)
  }
}

const costOf = ({ data }: Frame): number => data.length + FRAME_COST

/** Frames of one stream from the first unacknowledged one, and how many of them were sent. */
class UnackedFrames {
  readonly #frames: Frame[] = []
  #first = 0
  #sent = 0
  /** The highest number ever sent, on any outlet. */
  #reached = 0

  get unsent(): Frame | undefined {
    return this.#frames[this.#sent - this.#first]
  }

  push(frame: Frame): void {
    this.#frames.push(frame)
  }

  /** Counts the next frame as sent and returns its number. */
  sendNext(): number {
    const seq = this.#sent++
    this.#reached = Math.max(this.#reached, this.#sent)
    return seq
  }

  /** Drops the frames below `seq` and returns their cost. */
  ack(seq: number): number {
    if (seq < this.#first || seq > this.#sent) throw new AppError('malformed', `ack ${seq} outside ${this.#first}..${this.#sent}`)
    const frames = this.#frames.splice(0, seq - this.#first)
    this.#first = seq
    for (const frame of frames) frame.drop()
    return frames.reduce((sum, frame) => sum + costOf(frame), 0)
  }

  /** True if everything below `seq` was sent and everything from `seq` is still stored. */
  holds(seq: number): boolean {
    return seq >= this.#first && seq <= this.#reached
  }

  rewind(seq: number): void {
    this.#sent = seq
  }

  clear(): void {
    for (const frame of this.#frames.splice(0)) frame.drop()
  }
}

/** The current stream of the requester. */
export type FrameWriter = Pick<PeerStreamWriter, 'send' | 'sendAndRelease' | 'full' | 'drained'>

/** Number of the next frame of each stream. */
export interface Position {
  readonly stdout: number
  readonly stderr: number
}

export interface OutboxDeps {
  readonly total: UnackedTotal
  /** Receives the buffers of acknowledged frames. Absent means that they are garbage. */
  readonly frames?: BufferPool
}

export interface OutboxInit {
  readonly requestId: RequestId
  /** Called once after each `push` that returned false, when output may be read again. */
  onRoom(): void
}

/**
 * Everything that a run sends to its requester. Output is numbered and stored until it is acknowledged, but notes and the Exit are stored
 * to the end. All of it can be sent again on another outlet. The outbox pauses the program while the window is full, also without an
 * outlet.
 */
export class Outbox {
  readonly #total: UnackedTotal
  readonly #frames: BufferPool | null
  readonly #init: OutboxInit
  readonly #streams = { stdout: new UnackedFrames(), stderr: new UnackedFrames() }
  readonly #notes: Uint8Array[] = []
  readonly #resume = (): void => this.#check()
  #outlet: FrameWriter | null = null
  /** The outlet whose drain is awaited. */
  #draining: FrameWriter | null = null
  #exit: Uint8Array | null = null
  /** The outlet that received the Exit. */
  #exitSentTo: FrameWriter | null = null
  #order = 0
  #unacked = 0
  #window = FIRST_UNACKED_PER_RUN
  #waiting = false
  #closed = false

  constructor(deps: OutboxDeps, init: OutboxInit) {
    this.#total = deps.total
    this.#frames = deps.frames ?? null
    this.#init = init
  }

  /** True if unsent frames were dropped, so the run cannot resume. */
  get closed(): boolean {
    return this.#closed
  }

  /** Stored bytes that count for the limits. */
  get unacked(): number {
    return this.#unacked
  }

  /** Takes over the data. False means to read no more before `onRoom`. */
  push(stream: OutputName, data: Uint8Array): boolean {
    const frame = new Frame({ frames: this.#frames }, { data, order: this.#order++ })
    if (this.#closed) {
      frame.drop()
      return true
    }
    this.#streams[stream].push(frame)
    this.#unacked += costOf(frame)
    this.#total.add(costOf(frame))
    this.#pump()
    if (!this.#full) return true
    this.#wait()
    return false
  }

  /** Sends a small frame, also to every later outlet. */
  note(frame: Uint8Array): void {
    this.#notes.push(frame)
    this.#outlet?.send(frame)
  }

  /** Sends the last frame after all output. */
  finish(exit: Uint8Array): void {
    this.#exit = exit
    this.#pump()
  }

  /** Throws `malformed` for numbers that were never sent or go backwards. */
  ack(seqs: Position): void {
    const freed = this.#streams.stdout.ack(seqs.stdout) + this.#streams.stderr.ack(seqs.stderr)
    if (this.#closed) return
    this.#unacked -= freed
    // As in TCP's slow start, a fast reader gets a large window, and a stalled one costs little.
    this.#window = Math.min(this.#window + freed, MAX_UNACKED_PER_RUN)
    this.#total.remove(freed)
    this.#check()
  }

  /**
   * Sends everything to this outlet from now on, which is the greeting, all notes, and output from `from`. Throws `malformed`, without a
   * change, for numbers that were never sent or were acknowledged.
   */
  attach(outlet: FrameWriter, from: Position, greeting: readonly Uint8Array[] = []): void {
    const { stdout, stderr } = this.#streams
    if (!stdout.holds(from.stdout) || !stderr.holds(from.stderr))
      throw new AppError('malformed', `cannot continue from ${from.stdout} and ${from.stderr}`)
    stdout.rewind(from.stdout)
    stderr.rewind(from.stderr)
    this.#outlet = outlet
    for (const frame of [...greeting, ...this.#notes]) outlet.send(frame)
    this.#pump()
    this.#check()
  }

  /** The requester is disconnected, so frames are stored. */
  detach(): void {
    this.#outlet = null
    this.#check()
  }

  flush(): void {
    if (this.#outlet !== null) this.#send(this.#outlet, () => true)
  }

  /** Drops the rest, because the reader is gone. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#streams.stdout.clear()
    this.#streams.stderr.clear()
    this.#total.cancel(this.#resume)
    this.#total.remove(this.#unacked)
    this.#unacked = 0
    if (this.#waiting) this.#init.onRoom()
  }

  #pump(): void {
    const outlet = this.#outlet
    if (outlet === null || this.#draining === outlet) return
    if (this.#send(outlet, () => !outlet.full)) return
    void this.#pumpLater(outlet)
  }

  async #pumpLater(outlet: FrameWriter): Promise<void> {
    this.#draining = outlet
    await outlet.drained()
    if (this.#draining === outlet) this.#draining = null
    this.#pump()
    this.#check()
  }

  /** Sends in order while `mayGoOn` is true. Returns true when everything was sent. */
  #send(outlet: FrameWriter, mayGoOn: () => boolean): boolean {
    for (let stream = this.#nextStream(); stream !== null; stream = this.#nextStream()) {
      if (!mayGoOn()) return false
      const frames = this.#streams[stream]
      const frame = frames.unsent!
      const head = { type: stream, request_id: this.#init.requestId, seq: frames.sendNext(), data: NO_BYTES }
      outlet.sendAndRelease(frame.read(), execFrame.encodeHead(head, frame.data.length), frame.data)
    }
    if (this.#exit !== null && this.#exitSentTo !== outlet) {
      this.#exitSentTo = outlet
      outlet.send(this.#exit)
    }
    return true
  }

  /** The stream with the oldest unsent frame. */
  #nextStream(): OutputName | null {
    const [out, err] = [this.#streams.stdout.unsent, this.#streams.stderr.unsent]
    if (out === undefined) return err === undefined ? null : 'stderr'
    return err === undefined || out.order < err.order ? 'stdout' : 'stderr'
  }

  get #full(): boolean {
    return this.#unacked >= this.#window || this.#othersFill || this.#isBehind
  }

  /** The outlet takes no more for now. Meanwhile bytes wait in the program's pipe, to be read in large pieces. */
  get #isBehind(): boolean {
    return this.#outlet !== null && this.#draining === this.#outlet
  }

  /** A run whose reader keeps up has a minimum window, however much other runs leave unread. */
  get #othersFill(): boolean {
    return this.#total.full && this.#unacked >= MIN_UNACKED_PER_RUN
  }

  #wait(): void {
    this.#waiting = true
    if (this.#unacked < this.#window && this.#othersFill) this.#total.whenRoom(this.#resume)
  }

  #check(): void {
    if (!this.#waiting || this.#closed) return
    if (this.#full) return this.#wait()
    this.#waiting = false
    this.#init.onRoom()
  }
}
