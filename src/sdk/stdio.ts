import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { once } from 'node:events'
import { ByteTransport } from './byte-transport.ts'
import { quote, textOf } from './errors.ts'
import { pause } from './promises.ts'
import { CLOSE_GRACE_MS, CLOSE_KILL_MS, DRAIN_MS, type Transport, type TransportEvents, type TransportFactory } from './transport.ts'

/** The end of what a child says on stderr, for the text of an error. */
const MAX_STDERR_KEPT = 8 * 1024

export interface StdioOptions {
  /** The program and its arguments, as `['ssh', '-T', 'host', 'rexd', '--stdio']`; no shell looks at them here. */
  readonly command: readonly string[]
  /** Its whole environment; our own unless told. */
  readonly env?: Readonly<Record<string, string | undefined>>
  readonly cwd?: string
  /** In a session of its own: a Ctrl-C at our terminal is for us alone, and it can ask nobody for a password. False unless told. */
  readonly detached?: boolean
  /** What it says on stderr, as it comes. The end of it stands in the text of an error all the same. */
  readonly onStderr?: (bytes: Uint8Array) => void
  /** How long it has to go when it is closed, before it gets SIGTERM, in milliseconds: 12,000 unless told, which is what `rexd` may need. */
  readonly graceMs?: number
}

/** The last bytes of a stream. */
class Tail {
  #bytes: Buffer = Buffer.alloc(0)

  push(chunk: Uint8Array): void {
    // A copy of its own, so that a few bytes do not keep a whole chunk.
    this.#bytes = Buffer.from(Buffer.concat([this.#bytes, chunk]).subarray(-MAX_STDERR_KEPT))
  }

  get text(): string {
    return quote(this.#bytes.toString('utf8'), MAX_STDERR_KEPT)
  }
}

class ChildTransport implements Transport {
  readonly #child: ChildProcessWithoutNullStreams
  readonly #options: StdioOptions
  readonly #bytes: ByteTransport
  readonly #stderr = new Tail()
  readonly #exited = new AbortController()
  readonly #closed = new AbortController()

  constructor(child: ChildProcessWithoutNullStreams, options: StdioOptions, events: TransportEvents) {
    this.#child = child
    this.#options = options
    child.once('exit', () => this.#exited.abort())
    child.once('close', () => this.#closed.abort())
    // A write or a signal failed: the child is gone, which its exit reports.
    child.on('error', () => undefined)
    child.stderr.on('error', () => undefined)
    child.stderr.on('data', (chunk: Buffer) => {
      this.#stderr.push(chunk)
      options.onStderr?.(chunk)
    })
    const onClosed = (error: Error | null): void => void this.#tell(error, events)
    const onMessage = (text: string): void => events.onMessage(text)
    this.#bytes = new ByteTransport({ readable: child.stdout, writable: child.stdin }, { onMessage, onClosed })
  }

  send(text: string): void | Promise<void> {
    return this.#bytes.send(text)
  }

  pause(): void {
    this.#bytes.pause()
  }

  resume(): void {
    this.#bytes.resume()
  }

  /** The end of stdin is what asks it to go; SIGTERM after the grace, SIGKILL after another. */
  async close(): Promise<void> {
    this.#bytes.end()
    await pause(this.#options.graceMs ?? CLOSE_GRACE_MS, this.#exited.signal)
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      if (this.#exited.signal.aborted) break
      this.#child.kill(signal)
      await pause(CLOSE_KILL_MS, this.#exited.signal)
    }
    // Something that it left behind may hold them: ssh with ControlPersist keeps stderr.
    this.#bytes.destroy()
    this.#child.stderr.destroy()
  }

  /** How it ended is known a moment after its output has ended. */
  async #tell(error: Error | null, events: TransportEvents): Promise<void> {
    await pause(DRAIN_MS, this.#closed.signal)
    const { exitCode, signalCode } = this.#child
    const how =
      signalCode !== null
        ? `was ended by ${signalCode}`
        : exitCode !== null
          ? `ended with status ${exitCode}`
          : (error?.message ?? 'closed its output')
    const said = this.#stderr.text
    events.onClosed(
      new Error(`${nameOf(this.#options)} ${how}${said === '' ? '' : `: ${said}`}`, error === null ? undefined : { cause: error }),
    )
  }
}

const nameOf = ({ command }: StdioOptions): string => quote(command.join(' '))

/** REXD by a child process that carries it on its standard input and output: a `rexd` of this host, or ssh to another. Each opening starts it anew. */
export const stdio = (options: StdioOptions): TransportFactory => {
  const [file, ...args] = options.command
  if (file === undefined) throw new TypeError('command: names at least the program')
  const { cwd, detached = false, env = process.env } = options
  const open = async (events: TransportEvents): Promise<Transport> => {
    const child = spawn(file, args, { stdio: 'pipe', detached, env: { ...env }, ...(cwd === undefined ? {} : { cwd }) })
    try {
      await once(child, 'spawn')
    } catch (error) {
      throw new Error(`${nameOf(options)} cannot be started: ${textOf(error)}`, { cause: error })
    }
    return new ChildTransport(child, options, events)
  }
  return { name: nameOf(options), again: true, keepsSessions: false, open }
}
