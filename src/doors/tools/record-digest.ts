import { createHash } from 'node:crypto'

/** What stands in a record: its lines, and their SHA-256. The last line of a record says both of all the lines before it. */
export class RecordDigest {
  readonly #hash = createHash('sha256')
  #lines = 0

  /** Takes a line without its line feed. */
  add(line: Uint8Array): void {
    this.#hash.update(line).update('\n')
    this.#lines += 1
  }

  /** Of what was added by now; `sha256` in hex. */
  value(): { readonly lines: number; readonly sha256: string } {
    return { lines: this.#lines, sha256: this.#hash.copy().digest('hex') }
  }
}
