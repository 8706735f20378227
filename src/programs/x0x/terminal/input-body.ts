import { PassThrough } from 'node:stream'
import type { LocalSize } from './local-terminal.ts'

/** Bytes of lines that wait for the daemon before keys are no longer read. */
const HIGH_WATER_MARK = 64 * 1024
/** A multiple of three, so that base64 has padding at the end only. */
const CHUNK = 45 * 1024
/** End of file is a character on a terminal. After an incomplete line, the first one only delivers the line. */
const END_OF_FILE = '\u0004'
const LINE_FEED = 0x0a

/** The body of `POST /exec/terminal`: the request, then a line for each input. It ends with the command. */
export class InputBody extends PassThrough {
  #lastTyped = LINE_FEED

  constructor(head: string) {
    super({ highWaterMark: HIGH_WATER_MARK })
    this.write(`${head}\n`)
  }

  /** False means to type no more before `drain`. */
  type(bytes: Uint8Array): boolean {
    let goesOn = true
    for (let at = 0; at < bytes.length; at += CHUNK)
      goesOn = this.#line({ data: Buffer.from(bytes.subarray(at, at + CHUNK)).toString('base64') })
    this.#lastTyped = bytes.at(-1) ?? this.#lastTyped
    return goesOn
  }

  resize({ columns, rows }: LocalSize): void {
    this.#line({ columns, rows })
  }

  /** Types the end of file after standard input that is not a terminal. The body stays open, because its end cancels the run. */
  endOfFile(): void {
    this.type(Buffer.from(this.#lastTyped === LINE_FEED ? END_OF_FILE : END_OF_FILE.repeat(2)))
  }

  #line(input: object): boolean {
    return this.destroyed || this.write(`${JSON.stringify(input)}\n`)
  }
}
