import { createHash } from 'node:crypto'
import { visibleJson } from '../base/visible-text.ts'
import type { JournalEvent } from './events.ts'

/** `prev` of a chain's first line. */
export const FIRST_PREV = '0'.repeat(64)

/** Domain of a signature over a line. */
export const JOURNAL_HEAD_DOMAIN = 'x0x-journal-head-v1'

export const hashLine = (line: Uint8Array): string => createHash('sha256').update(line).digest('hex')

/** One line without its line feed: the head, then the fields of the event. */
export interface EncodedLine {
  readonly bytes: Buffer
  readonly hash: string
}

/** A line without its position in the chain. */
export interface PreparedLine {
  readonly ts: string
  readonly event: string
  /** Fields of the event as JSON members after the head. */
  readonly members: string
}

export const prepareLine = (event: JournalEvent, nowMs: number): PreparedLine => {
  const { event: name, ...fields } = event
  return { ts: new Date(nowMs).toISOString(), event: name, members: visibleJson(JSON.stringify(fields)).slice(1) }
}

/** End of an unsigned line, and of a signed one. */
const UNSIGNED = '"signature":null}'
const SIGNED = /"signature":"([A-Za-z0-9+/]+={0,2})"\}$/

/** The line with the signature in place of null. */
export const withSignature = ({ bytes }: EncodedLine, signature: Uint8Array): EncodedLine => {
  const text = bytes.toString()
  if (!text.endsWith(UNSIGNED)) throw new TypeError('this line has no place for a signature')
  const signed = Buffer.from(`${text.slice(0, -UNSIGNED.length)}"signature":"${Buffer.from(signature).toString('base64')}"}`)
  return { bytes: signed, hash: hashLine(signed) }
}

/** The signed bytes and the signature, or null for an unsigned line. */
export const signatureOf = (line: Buffer): { readonly body: Buffer; readonly signature: Buffer } | null => {
  const text = line.toString()
  const [whole, signature] = SIGNED.exec(text) ?? []
  if (whole === undefined || signature === undefined) return null
  return { body: Buffer.from(text.slice(0, -whole.length) + UNSIGNED), signature: Buffer.from(signature, 'base64') }
}

/** Writing side of one chain: numbers lines, and releases the numbers of unwritten ones. */
export class Chain {
  readonly id: string
  #next = 0
  #prev = FIRST_PREV

  constructor(init: { id: string }) {
    this.id = init.id
  }

  /** True until a line is in the file. */
  get isNew(): boolean {
    return this.#next === 0
  }

  /** Encodes lines with their next numbers. The chain advances only by `commit`. */
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

  /** These lines are in the file in this order. */
  commit(written: readonly EncodedLine[]): void {
    this.#next += written.length
    this.#prev = written.at(-1)?.hash ?? this.#prev
  }
}
