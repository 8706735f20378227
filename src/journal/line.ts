import { createHash } from 'node:crypto'
import { visibleJson } from '../base/visible-text.ts'
import type { JournalEvent } from './events.ts'

/** The `prev` of a chain's first line. */
export const FIRST_PREV = '0'.repeat(64)

/** What a signature over a line is for. */
export const JOURNAL_HEAD_DOMAIN = 'x0x-journal-head-v1'

export const hashLine = (line: Uint8Array): string => createHash('sha256').update(line).digest('hex')

/** One line without its line feed: the head first, then the fields of the event. */
export interface EncodedLine {
  readonly bytes: Buffer
  readonly hash: string
}

/** Everything of a line but its place in the chain. */
export interface PreparedLine {
  readonly ts: string
  readonly event: string
  /** The fields of the event as JSON members behind the head. */
  readonly members: string
}

export const prepareLine = (event: JournalEvent, nowMs: number): PreparedLine => {
  const { event: name, ...fields } = event
  return { ts: new Date(nowMs).toISOString(), event: name, members: visibleJson(JSON.stringify(fields)).slice(1) }
}

/** How a line ends that is not signed yet, and as it is signed. */
const UNSIGNED = '"signature":null}'
const SIGNED = /"signature":"([A-Za-z0-9+/]+={0,2})"\}$/

/** The line with its signature in the place of null. */
export const withSignature = ({ bytes }: EncodedLine, signature: Uint8Array): EncodedLine => {
  const text = bytes.toString()
  if (!text.endsWith(UNSIGNED)) throw new TypeError('this line has no place for a signature')
  const signed = Buffer.from(`${text.slice(0, -UNSIGNED.length)}"signature":"${Buffer.from(signature).toString('base64')}"}`)
  return { bytes: signed, hash: hashLine(signed) }
}

/** What was signed, and the signature; null where the line ends with none. */
export const signatureOf = (line: Buffer): { readonly body: Buffer; readonly signature: Buffer } | null => {
  const text = line.toString()
  const [whole, signature] = SIGNED.exec(text) ?? []
  if (whole === undefined || signature === undefined) return null
  return { body: Buffer.from(text.slice(0, -whole.length) + UNSIGNED), signature: Buffer.from(signature, 'base64') }
}

/** The writing side of one chain: gives lines their place, and forgets those that were never written. */
export class Chain {
  readonly id: string
  #next = 0
  #prev = FIRST_PREV

  constructor(init: { id: string }) {
    this.id = init.id
  }

  /** No line of it is in the file yet. */
  get isNew(): boolean {
    return this.#next === 0
  }

  /** Encodes lines in the places they would have; the chain moves on only by `commit`. */
  encode(lines: readonly PreparedLine[]): EncodedLine[] {
    let prev = this.#prev
    return lines.map(({ ts, event, members }, index) => {
      const head = `{"ts":"${ts}","event":"${event}","chain":"${this.id}","n":${this.#next + index},"prev":"${prev}",`
      const bytes = Buffer.from(head + members)
      const hash = hashLine(bytes)
      prev = hash
      return { bytes, hash }
    })
  }

  /** These lines, in this order, are in the file. */
  commit(written: readonly EncodedLine[]): void {
    this.#next += written.length
    this.#prev = written.at(-1)?.hash ?? this.#prev
  }
}
