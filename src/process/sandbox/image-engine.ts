import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { IMAGE_ASK_MS } from '../../protocol/sandbox-limits.ts'
import { MAX_WRAPPER_TEXT } from '../pid-namespace.ts'

/** Of our own environment, what an engine finds its images by. */
const ENGINE_VARIABLES = /^(PATH|HOME|USER|TMPDIR|XDG_.*|CONTAINERS_.*|DOCKER_.*)$/
export const engineEnv = (): Record<string, string> =>
  Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) => (value !== undefined && ENGINE_VARIABLES.test(name) ? [[name, value]] : [])),
  )

const MAX_INSPECT_BYTES = 1024 * 1024

/** Runs an engine to its end; answers what it wrote. Throws what it complains of. */
export const ask = async (engine: string, args: readonly string[]): Promise<string> => {
  const child = spawn(engine, args, {
    env: engineEnv(),
    cwd: '/',
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: IMAGE_ASK_MS,
    killSignal: 'SIGKILL',
  })
  const closed = once(child, 'close') as Promise<[number | null]>
  let [text, complaint] = ['', '']
  child.stdout.on('data', (chunk: Buffer) => {
    text = (text + chunk.toString()).slice(0, MAX_INSPECT_BYTES)
  })
  child.stderr.on('data', (chunk: Buffer) => {
    complaint = (complaint + chunk.toString()).slice(0, MAX_WRAPPER_TEXT)
  })
  const [code] = await closed
  if (code !== 0) throw new Error(complaint.trim() || `it ended with ${code ?? `a signal, or took more than ${IMAGE_ASK_MS / 1_000} s`}`)
  return text
}
