import { once } from 'node:events'

import type { Home, RexdProcess } from './server.ts'
import type { Wire } from './wire.ts'

/** Lines on the standard streams of a program. */
export class StdioWire implements Wire {
  readonly name = 'stdio'
  readonly process: RexdProcess
  readonly closed: Promise<string>

  constructor(process: RexdProcess) {
    this.process = process
    this.closed = once(process.child, 'close').then(async () => `rexd ended with ${await process.exited}: ${process.stderr}`)
  }

  get home(): Home {
    return this.process.home
  }

  send(message: string | Uint8Array): void {
    const { stdin } = this.process.child
    stdin.cork()
    stdin.write(message)
    stdin.write('\n')
    stdin.uncork()
  }

  listen(listener: (text: string) => void): void {
    let parts: Buffer[] = []
    this.process.child.stdout.on('data', (chunk: Buffer) => {
      let start = 0
      for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
        parts.push(chunk.subarray(start, end))
        listener(Buffer.concat(parts).toString())
        parts = []
        start = end + 1
      }
      if (start < chunk.length) parts.push(chunk.subarray(start))
    })
  }

  pause(): void {
    this.process.child.stdout.pause()
  }

  resume(): void {
    this.process.child.stdout.resume()
  }

  /** Only the process that started the server can use its streams. */
  async another(): Promise<Wire> {
    throw new Error('standard streams have one caller')
  }

  async leave(): Promise<void> {
    const { child } = this.process
    child.stdin.end()
    await this.closed
  }
}
