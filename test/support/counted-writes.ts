import { Duplex } from 'node:stream'

/** Counts writes of any size. Each write is a system call and wakes the reader. */
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
