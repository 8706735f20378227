import { createHash } from 'node:crypto'

type Value = string | number | bigint | boolean | Uint8Array | null

/** One tag byte before each value names its kind, so that values of different kinds never have the same bytes. */
const TAGS = { null: 0, false: 1, true: 2, number: 3, text: 4, bytes: 5, list: 6, table: 7 } as const

const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

/** An unambiguous encoding of named fields, each with its count and length. Two inputs that differ have different bytes. */
export class Framed {
  readonly #parts: Buffer[] = []

  constructor(domain: string) {
    this.#text(domain)
  }

  add(name: string, ...values: readonly Value[]): this {
    this.#text(name)
    this.#parts.push(u32(values.length))
    for (const value of values) this.#value(value)
    return this
  }

  /** Adds a value of any shape. Keys of tables are sorted; keys without a value are left out. */
  tree(name: string, value: unknown): this {
    this.#text(name)
    this.#tree(value)
    return this
  }

  bytes(): Buffer {
    return Buffer.concat(this.#parts)
  }

  /** The SHA-256 of all fields as hex. */
  digest(): string {
    const hash = createHash('sha256')
    for (const part of this.#parts) hash.update(part)
    return hash.digest('hex')
  }

  #tree(value: unknown): void {
    if (Array.isArray(value)) {
      this.#tag('list')
      this.#parts.push(u32(value.length))
      for (const item of value) this.#tree(item)
    } else if (typeof value === 'object' && value !== null && !(value instanceof Uint8Array)) {
      const entries = Object.entries(value)
        .filter(([, part]) => part !== undefined)
        .sort(([one], [other]) => (one < other ? -1 : 1))
      this.#tag('table')
      this.#parts.push(u32(entries.length))
      for (const [key, part] of entries) {
        this.#text(key)
        this.#tree(part)
      }
    } else this.#value(value as Value)
  }

  #value(value: Value): void {
    if (value === null) this.#tag('null')
    else if (typeof value === 'boolean') this.#tag(value ? 'true' : 'false')
    else if (typeof value === 'number' || typeof value === 'bigint') {
      this.#tag('number')
      this.#text(String(value))
    } else if (typeof value === 'string') {
      this.#tag('text')
      this.#text(value)
    } else {
      this.#tag('bytes')
      this.#sized(Buffer.from(value))
    }
  }

  #tag(tag: keyof typeof TAGS): void {
    this.#parts.push(Buffer.from([TAGS[tag]]))
  }

  /** Encodes text as UTF-8, as a program would receive it. */
  #text(text: string): void {
    this.#sized(Buffer.from(text, 'utf8'))
  }

  #sized(bytes: Buffer): void {
    this.#parts.push(u32(bytes.length), bytes)
  }
}
