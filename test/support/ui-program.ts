import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { TestContext } from 'node:test'

import { MeshOfDaemons, type TestDaemon } from './mesh-of-daemons.ts'

const X0X = join(import.meta.dirname, '../../deploy/bin/x0x.cjs')

export interface UiProgram {
  readonly child: ChildProcessWithoutNullStreams
  /** The next line of its standard output. */
  next(): Promise<string>
  readonly ended: Promise<readonly [number | null, NodeJS.Signals | null]>
  stderr(): string
}

/** Starts `x0x ui`. The test ends it. */
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

/** A mesh, and `x0x ui` for one of its daemons. The UI ends first, because the mesh waits until no process names its directory. */
export const meshWithUi = async (
  t: Pick<TestContext, 'after'>,
): Promise<{ readonly mesh: MeshOfDaemons; serve(daemon: TestDaemon): UiProgram }> => {
  const mesh = await MeshOfDaemons.create()
  let ui: UiProgram | null = null
  t.after(async () => {
    ui?.child.kill('SIGKILL')
    await ui?.ended
    await mesh.stop()
  })
  return { mesh, serve: (daemon) => (ui = startUi(t, ['--data-dir', daemon.dir, '--json'])) }
}

/** The address and the code of a link that it has printed. */
export const linkOf = (line: string): { readonly url: string; readonly origin: string; readonly port: number; readonly code: string } => {
  const { url } = JSON.parse(line) as { url: string }
  const { origin, port, hash } = new URL(url)
  return { url, origin, port: Number(port), code: hash.slice(1) }
}
