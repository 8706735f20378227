import assert from 'node:assert/strict'

export interface RpcEvent {
  /** Position among all received messages. */
  readonly at: number
  readonly method: string
  readonly params: Readonly<Record<string, unknown>> & { readonly process_id: string }
}

export type OutputStream = 'stdout' | 'stderr'

/** A terminal has only one output stream. */
const STREAMS: Readonly<Record<string, OutputStream>> = { 'exec.stdout': 'stdout', 'exec.stderr': 'stderr', 'pty.output': 'stdout' }
const ENDS: readonly string[] = ['exec.exit', 'pty.exit']

/** All events of one process in order. Checks their order as they arrive. */
export class ProcessLog {
  readonly id: string
  readonly events: RpcEvent[] = []
  readonly #seqs = { stdout: 0, stderr: 0 }
  readonly #chunks: Record<OutputStream, Buffer[]> = { stdout: [], stderr: [] }
  readonly #ended = Promise.withResolvers<RpcEvent['params']>()
  readonly #failed = Promise.withResolvers<RpcEvent['params']>()
  readonly #looks = new Set<() => void>()
  /** Violations of the order of events. */
  readonly faults: string[] = []

  constructor(id: string) {
    this.id = id
  }

  /** Parameters of exec.exit or pty.exit. */
  get exit(): Promise<RpcEvent['params']> {
    return this.#ended.promise
  }

  /** Parameters of exec.error. */
  get error(): Promise<RpcEvent['params']> {
    return this.#failed.promise
  }

  get stdout(): Buffer {
    return Buffer.concat(this.#chunks.stdout)
  }

  get stderr(): Buffer {
    return Buffer.concat(this.#chunks.stderr)
  }

  /** Called when no more events can arrive. */
  lost(how: string): void {
    for (const one of [this.#ended, this.#failed]) {
      // Most tests do not wait for both promises.
      one.promise.catch(() => undefined)
      one.reject(new Error(how))
    }
  }

  add(event: RpcEvent): void {
    const { method, params } = event
    const last = this.events.at(-1)?.method ?? ''
    if (ENDS.includes(last)) this.faults.push(`${method} after ${last}`)
    this.events.push(event)
    const stream = STREAMS[method]
    if (stream !== undefined) this.#output(stream, params)
    else if (ENDS.includes(method)) this.#ended.resolve(params)
    else if (method === 'exec.error') this.#failed.resolve(params)
    else this.faults.push(`${method}: no such event`)
    for (const look of this.#looks) look()
  }

  /** Resolves when a stream contains this text. Throws if the process ends first. */
  async printed(text: string, stream: OutputStream = 'stdout'): Promise<void> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        if (!this[stream].includes(text)) return
        this.#looks.delete(look)
        resolve()
      }
      this.#looks.add(look)
      look()
      this.exit.then((exit) => reject(new Error(`it ended before it printed ${text}: ${JSON.stringify(exit)} ${this.stderr}`)), reject)
    })
  }

  /** Waits for the end. Fails if an event followed it or if output is missing. */
  async finished(): Promise<RpcEvent['params']> {
    const exit = await this.exit
    assert.deepEqual(this.faults, [])
    return exit
  }

  /** The numbers after `name ` at the start of lines. */
  pids(name = 'pid'): number[] {
    return [...this.stdout.toString().matchAll(new RegExp(`^${name} (\\d+)$`, 'gm'))].map((match) => Number(match[1]))
  }

  #output(stream: OutputStream, { seq, data, encoding }: RpcEvent['params']): void {
    const expected = ++this.#seqs[stream]
    if (seq !== expected) this.faults.push(`${stream}: seq ${String(seq)} instead of ${expected}`)
    if (encoding !== 'utf8' && encoding !== 'base64') this.faults.push(`${stream}: encoding ${String(encoding)}`)
    this.#chunks[stream].push(Buffer.from(String(data), encoding === 'base64' ? 'base64' : 'utf8'))
  }
}
