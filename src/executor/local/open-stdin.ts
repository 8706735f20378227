import type { StdinSink } from '../../process/stdin.ts'

/** Bytes that wait for the program; beyond this no more are taken. */
export const MAX_STDIN_UNACKED = 1024 * 1024
/** Pieces below this are joined while they wait, so that a flood of tiny ones does not cost memory. */
const JOIN_BELOW = 4_096

/** What came with the command: its door has bounded it, and all of it is taken. `eof`: nothing follows. */
export interface FirstStdin {
  readonly first: Uint8Array
  readonly eof: boolean
}

/** The stdin of a local program, which its caller sends piece by piece and did not announce. */
export class OpenStdin {
  readonly #queue: Uint8Array[] = []
  #sink: StdinSink | null = null
  #bytes = 0
  #writing = false
  #stopped = false
  #ended: boolean

  constructor({ first, eof }: FirstStdin) {
    if (first.length > 0) this.#keep(first)
    this.#ended = eof
  }

  /** Its end was given: nothing more is taken. */
  get ended(): boolean {
    return this.#ended
  }

  /** Takes what there is room for, from the beginning; answers how many bytes. `eof` counts where all were taken. */
  give(data: Uint8Array, eof: boolean): number {
    const room = Math.max(0, MAX_STDIN_UNACKED - this.#bytes)
    // A copy: a view would keep the whole message for the part that was taken.
    const taken = data.length <= room ? data : Uint8Array.from(data.subarray(0, room))
    if (taken.length > 0 && !this.#stopped) this.#keep(taken)
    this.#ended = eof && taken.length === data.length
    void this.#write()
    return taken.length
  }

  /** The program is there. */
  attach(sink: StdinSink): void {
    this.#sink = sink
    void this.#write()
  }

  stop(): void {
    this.#stopped = true
    this.#queue.length = 0
  }

  #keep(data: Uint8Array): void {
    this.#bytes += data.length
    const last = this.#queue.at(-1)
    if (last === undefined || last.length + data.length > JOIN_BELOW) this.#queue.push(data)
    else this.#queue[this.#queue.length - 1] = Buffer.concat([last, data])
  }

  async #write(): Promise<void> {
    if (this.#writing || this.#sink === null) return
    this.#writing = true
    for (let data = this.#queue.shift(); data !== undefined; data = this.#queue.shift()) {
      await this.#sink.write(data)
      this.#bytes -= data.length
    }
    this.#writing = false
    if (this.#ended && !this.#stopped) this.#sink.end()
  }
}
