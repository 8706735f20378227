import { isUtf8 } from 'node:buffer'
import { TerminalFilter } from '../../base/terminal-text.ts'
import { shown } from '../../base/visible-text.ts'
import { RingBuffer } from '../../protocol/ring-buffer.ts'
import { isContinuation, unfinished } from '../../protocol/text.ts'

/** A part of a text. Offsets count bytes of its UTF-8 from 0. Characters are never cut. */
export interface OutputTextPage {
  readonly text: string
  /** Offset of the first byte. It is later than requested if earlier text was dropped. */
  readonly from: number
  /** Offset at which to continue. */
  readonly next: number
}

/** The beginning and the end of a long text. */
export interface TruncatedText {
  readonly head: string
  readonly tail: string
  /** Number of bytes between them. */
  readonly cut: number
}

/** Retains the beginning and the end of a text in bounded memory. The result depends on the text alone, not on the pieces in which it arrived. */
export class HeadTailBuffer {
  readonly #max: { readonly head: number; readonly tail: number }
  readonly #head: RingBuffer
  /** The text after the head. */
  readonly #tail: RingBuffer
  /** Whether the head accepts no more text. */
  #headIsWhole = false

  /** Sizes in bytes. */
  constructor(init: { readonly head: number; readonly tail: number }) {
    this.#max = init
    this.#head = new RingBuffer({ max: init.head })
    this.#tail = new RingBuffer({ max: init.tail })
  }

  /** Bytes of the whole text. */
  get total(): number {
    return this.#head.total + this.#tail.total
  }

  /** Bytes of memory in use. */
  get size(): number {
    return this.#head.capacity + this.#tail.capacity
  }

  push(text: string): void {
    const bytes = Buffer.from(text)
    const room = this.#headIsWhole ? 0 : this.#max.head - this.#head.total
    const fits = bytes.subarray(0, room)
    const first = fits.subarray(0, fits.length - unfinished(fits))
    this.#headIsWhole ||= first.length < bytes.length
    this.#head.push(first)
    this.#tail.push(bytes.subarray(first.length))
  }

  /** The whole text as `head` if it fits into `max` bytes, else equal parts of `max` from the beginning and from the end. */
  cut(max: number): TruncatedText {
    if (this.total <= max && this.#gap === 0) return { head: this.#part(0, this.total).text, tail: '', cut: 0 }
    const half = Math.floor(max / 2)
    const head = this.#part(0, Math.min(half, this.#head.total))
    const tail = this.#part(this.#gap === 0 ? this.total - half : Math.max(this.total - half, this.#tailFrom), this.total)
    return { head: head.text, tail: tail.text, cut: tail.from - head.next }
  }

  /** At most `max` bytes from offset `from`. Text that was dropped is skipped. */
  read(from: number, max: number): OutputTextPage {
    const begin = Math.min(this.isLost(from) ? this.#tailFrom : from, this.total)
    const end = begin < this.#head.total && this.#gap > 0 ? this.#head.total : this.total
    return this.#part(begin, Math.min(begin + max, end))
  }

  /** Whether the text at this offset was dropped. */
  isLost(place: number): boolean {
    return place >= this.#head.total && place < this.#tailFrom
  }

  /** Offset at which the retained end begins. */
  get #tailFrom(): number {
    return Math.max(this.#head.total, this.total - this.#max.tail)
  }

  get #gap(): number {
    return this.#tailFrom - this.#head.total
  }

  /** Text between two retained offsets. A character that is cut at `begin` belongs to the part before, one that is cut at `end` to the next. */
  #part(begin: number, end: number): OutputTextPage {
    const behind = this.#head.total
    const head = this.#head.slice(begin, Math.min(end, behind))
    const tail = this.#tail.slice(Math.max(begin - behind, 0), end - behind)
    const bytes = Buffer.concat([head, tail])
    let from = 0
    while (isContinuation(bytes[from])) from += 1
    const whole = bytes.subarray(from, bytes.length - unfinished(bytes))
    return { text: whole.toString(), from: begin + from, next: begin + from + whole.length }
  }
}

const leftOut = (bytes: number): string => `\n[… ${bytes} bytes are left out …]\n`
const notKept = (bytes: number): string => (bytes === 0 ? '' : `\n[… ${bytes} more bytes were not kept …]\n`)

/**
 * Text of at most `max` bytes with notes about missing parts, or only its beginning if the notes do not fit. `above` counts bytes that
 * arrived and were not retained. `cut` counts retained bytes that are left out.
 */
export const shownText = (kept: HeadTailBuffer, max: number, above: number): { readonly text: string; readonly cut: number } => {
  if (above === 0 && kept.cut(max).cut === 0) return { text: kept.cut(max).head, cut: 0 }
  const end = notKept(above)
  const room = max - Buffer.byteLength(end)
  const whole = kept.cut(Math.max(room, 0))
  if (whole.cut === 0 && room >= 0) return { text: whole.head + end, cut: 0 }
  const parts = room - Buffer.byteLength(leftOut(kept.total))
  if (parts < 0) {
    const { text, next } = kept.read(0, max)
    return { text, cut: kept.total - next }
  }
  const { head, tail, cut } = kept.cut(parts)
  return { text: head + leftOut(cut) + tail + end, cut }
}

/** Bytes retained from each end of a stream, while the run is known. */
export const KEPT_BYTES = 512 * 1024

/**
 * One output stream as text for a model, without terminal control sequences, with other hidden characters escaped, and with U+FFFD for
 * invalid UTF-8.
 */
export class ModelText {
  readonly kept = new HeadTailBuffer({ head: KEPT_BYTES, tail: KEPT_BYTES })
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  readonly #filter = new TerminalFilter()
  /** The beginning of an incomplete character. */
  #started: Uint8Array = new Uint8Array(0)
  #invalid = false
  /** Bytes of text that were dropped. */
  readonly gone: number

  constructor(init: { readonly gone: number } = { gone: 0 }) {
    this.gone = init.gone
  }

  /** Whether U+FFFD replaces invalid UTF-8. */
  get invalidUtf8(): boolean {
    return this.#invalid
  }

  push(bytes: Uint8Array): void {
    this.#check(bytes)
    this.#keep(this.#decoder.decode(bytes, { stream: true }))
  }

  end(): void {
    this.#invalid ||= this.#started.length > 0
    this.#keep(this.#decoder.decode())
    this.kept.push(this.#filter.end())
  }

  #check(bytes: Uint8Array): void {
    if (this.#invalid) return
    const all = this.#started.length === 0 ? bytes : Buffer.concat([this.#started, bytes])
    const end = all.length - unfinished(all)
    this.#invalid = !isUtf8(all.subarray(0, end))
    this.#started = Uint8Array.from(all.subarray(end))
  }

  #keep(text: string): void {
    if (text !== '') this.kept.push(shown(this.#filter.push(text)))
  }
}
