import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { TestContext } from 'node:test'

const X0X = join(import.meta.dirname, '../../deploy/bin/x0x.cjs')

export interface UiProgram {
  readonly child: ChildProcessWithoutNullStreams
  /** The next line of its standard output. */
  next(): Promise<string>
  readonly ended: Promise<readonly [number | null, NodeJS.Signals | null]>
  stderr(): string
}

/** Starts `x0x ui`; it is ended with the test. */
export const startUi = (t: Pick<TestContext, 'after'>, flags: readonly string[]): UiProgram => {
  const child = spawn(process.execPath, [X0X, 'ui', ...flags], { stdio: 'pipe' })
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text))
  const ended = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  t.after(async () => {
    child.kill('SIGKILL')
    await ended
  })
  const next = async (): Promise<string> => {
    const line = await lines.next()
    if (line.done === true) throw new Error(`x0x ui ended: ${errors}`)
    return line.value
  }
  return { child, next, ended, stderr: () => errors }
}

/** Its address, and the code of a link that it has printed. */
export const linkOf = (line: string): { readonly url: string; readonly origin: string; readonly port: number; readonly code: string } => {
  const { url } = JSON.parse(line) as { url: string }
  const { origin, port, hash } = new URL(url)
  return { url, origin, port: Number(port), code: hash.slice(1) }
}
