import { Gathered } from '../../../protocol/gathered.ts'
import { LINE_FEED } from '../../../protocol/lines.ts'

/** Of one line that is held until it ends. With both outputs of 64 hosts that is 4 MiB; a longer line is shown in pieces. */
export const MAX_LINE_PIECE = 32 * 1024

/** Cuts bytes into lines wherever the chunks end; a line that is too long to hold comes in pieces. */
export class LinePieces {
  readonly #held = new Gathered({ max: MAX_LINE_PIECE })

  /** A last line without an end of its own; null where there is none. */
  rest(): Uint8Array | null {
    return this.#held.length === 0 ? null : this.#held.take()
  }

  /** The lines that end in this chunk, without their line feeds. */
  *push(chunk: Uint8Array): Generator<Uint8Array, void, undefined> {
    for (let rest = chunk; rest.length > 0;) {
      const end = rest.indexOf(LINE_FEED)
      const line = end === -1 ? rest : rest.subarray(0, end)
      const room = MAX_LINE_PIECE - this.#held.length
      if (line.length > room) {
        this.#held.add(line.subarray(0, room))
        yield this.#held.take()
        rest = rest.subarray(room)
        continue
      }
      if (end === -1) return this.#held.add(line)
      rest = rest.subarray(end + 1)
      if (this.#held.length === 0) yield line
      else {
        this.#held.add(line)
        yield this.#held.take()
      }
    }
  }
}

/** The lines of bytes that are all there. */
export function* linesOfWhole(bytes: Uint8Array): Generator<Uint8Array, void, undefined> {
  const pieces = new LinePieces()
  yield* pieces.push(bytes)
  const rest = pieces.rest()
  if (rest !== null) yield rest
}
