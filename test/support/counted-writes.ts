import { Duplex } from 'node:stream'

/** Counts how often something is written to it, however much: each is a call of the system, and wakes whoever reads. */
export class CountedWrites extends Duplex {
  writes = 0
  written = Buffer.alloc(0)

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this._writev([{ chunk }], done)
  }

  override _writev(chunks: readonly { chunk: Buffer }[], done: () => void): void {
    this.writes += 1
    this.written = Buffer.concat([this.written, ...chunks.map(({ chunk }) => chunk)])
    done()
  }
}
