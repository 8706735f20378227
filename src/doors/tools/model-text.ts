import { isUtf8 } from 'node:buffer'
import { TerminalFilter } from '../../base/terminal-filter.ts'
import { shown } from '../../base/visible-text.ts'
import { unfinished } from '../../protocol/text.ts'
import { KeptText } from './kept-text.ts'

/** Bytes of each end of a stream that are kept for as long as its run is known. */
export const KEPT_BYTES = 512 * 1024

/**
 * One stream of a program, as text for a model: without what a terminal obeys, with each other character that hides
 * as an escape, and with U+FFFD for what is no UTF-8.
 */
export class ModelText {
  readonly kept = new KeptText({ head: KEPT_BYTES, tail: KEPT_BYTES })
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  readonly #filter = new TerminalFilter()
  /** The beginning of a character that goes on. */
  #begun: Uint8Array = new Uint8Array(0)
  #invalid = false
  /** Bytes of text that are not here any more. */
  readonly gone: number

  constructor(init: { readonly gone: number } = { gone: 0 }) {
    this.gone = init.gone
  }

  /** U+FFFD stands in it for bytes that are no UTF-8. */
  get invalidUtf8(): boolean {
    return this.#invalid
  }

  push(bytes: Uint8Array): void {
    this.#check(bytes)
    this.#keep(this.#decoder.decode(bytes, { stream: true }))
  }

  /** No more comes. */
  end(): void {
    this.#invalid ||= this.#begun.length > 0
    this.#keep(this.#decoder.decode())
    this.kept.push(this.#filter.end())
  }

  #check(bytes: Uint8Array): void {
    if (this.#invalid) return
    const all = this.#begun.length === 0 ? bytes : Buffer.concat([this.#begun, bytes])
    const end = all.length - unfinished(all)
    this.#invalid = !isUtf8(all.subarray(0, end))
    this.#begun = Uint8Array.from(all.subarray(end))
  }

  #keep(text: string): void {
    if (text !== '') this.kept.push(shown(this.#filter.push(text)))
  }
}
