import { once } from 'node:events'
import type { Readable, Writable } from 'node:stream'

import { WebSocket } from 'ws'

import { LineSplitter } from '../src/protocol/lines.ts'
import { MAX_RPC_MESSAGE } from '../src/protocol/limits/rexd.ts'
import { splitContent } from '../src/protocol/rexd/binary-message.ts'
import type { Reached } from '../test/support/rexd-callers.ts'

interface Message {
  readonly id?: number
  readonly result?: Readonly<Record<string, unknown>>
  readonly error?: object
  readonly method?: string
  readonly params?: Readonly<Record<string, unknown>>
}

type Result = NonNullable<Message['result']>

/** A client that discards output, so that only the server and the transport are measured. */
export class RexdCaller {
  readonly #send: (text: string) => void
  readonly #answers = new Map<number, PromiseWithResolvers<Result>>()
  readonly #exits = new Map<string, PromiseWithResolvers<Result>>()
  #last = 0
  #session = ''

  private constructor(send: (text: string) => void) {
    this.#send = send
  }

  /** Exchanges one JSON object per line. */
  static async overLines(program: { readonly stdin: Writable; readonly stdout: Readable }): Promise<RexdCaller> {
    const caller = new RexdCaller((text) => void program.stdin.write(`${text}\n`))
    const lines = new LineSplitter({ max: MAX_RPC_MESSAGE })
    program.stdin.on('error', () => undefined)
    program.stdout.on('data', (chunk: Buffer) => {
      for (const line of lines.push(chunk)) if (line !== 'too_long') caller.#receive(line)
    })
    program.stdout.on('close', () => caller.#lose())
    return caller.#opened()
  }

  /** `compressed` uses permessage-deflate, as browsers and most libraries do. `bytes` transfers files without base64. */
  static async overWebSocket(
    { url, token }: Reached,
    { compressed, bytes = false }: { readonly compressed: boolean; readonly bytes?: boolean },
  ): Promise<RexdCaller> {
    const headers = { authorization: `Bearer ${token}`, ...(bytes ? { 'rexd-content': 'bytes' } : {}) }
    const socket = new WebSocket(`${url.replace('http', 'ws')}/ws`, { headers, perMessageDeflate: compressed })
    await once(socket, 'open')
    const caller = new RexdCaller((text) => socket.send(text))
    socket.on('message', (data: Buffer, isBinary: boolean) => {
      const { json, content } = (isBinary ? splitContent(data) : null) ?? { json: data, content: undefined }
      caller.#receive(json, content)
    })
    socket.on('close', () => caller.#lose())
    return caller.#opened()
  }

  /** Runs a command and waits for its exit. */
  async run(argv: readonly string[]): Promise<void> {
    const id = String((await this.#call('exec.start', { argv }))['process_id'])
    const { exit_code } = await this.#exitOf(id).promise
    this.#exits.delete(id)
    if (exit_code !== 0) throw new Error(`${argv.join(' ')} ended with ${String(exit_code)}`)
  }

  async read(params: { path: string; offset?: number; length?: number; encoding: 'utf8' | 'base64' }): Promise<string> {
    return String((await this.#call('fs.read', params))['content'])
  }

  /** Reads a part of a file into its place in `target`. */
  async readTo(target: Buffer, { path, offset, length }: { path: string; offset: number; length: number }): Promise<void> {
    const { content } = await this.#call('fs.read', { path, offset, length, encoding: 'base64' })
    if (content instanceof Uint8Array) target.set(content, offset)
    else target.write(String(content), offset, 'base64')
  }

  async #opened(): Promise<RexdCaller> {
    this.#session = String((await this.#call('session.open', { client_name: 'bench' }))['session_id'])
    return this
  }

  async #call(method: string, params: object): Promise<Result> {
    const id = ++this.#last
    const answer = Promise.withResolvers<Result>()
    this.#answers.set(id, answer)
    const session = this.#session === '' ? {} : { session_id: this.#session }
    this.#send(JSON.stringify({ jsonrpc: '2.0', id, method, params: { ...session, ...params } }))
    return answer.promise
  }

  #receive(bytes: Buffer, content?: Buffer): void {
    const { id, result, error, method, params } = JSON.parse(bytes.toString()) as Message
    if (method === 'exec.exit') return this.#exitOf(String(params?.['process_id'])).resolve(params!)
    if (id === undefined) return
    const answer = this.#answers.get(id)
    this.#answers.delete(id)
    if (result === undefined) answer?.reject(new Error(JSON.stringify(error)))
    else answer?.resolve(content === undefined ? result : { ...result, content })
  }

  /** The exit can arrive together with the answer to the start. */
  #exitOf(processId: string): PromiseWithResolvers<Result> {
    const exit = this.#exits.get(processId) ?? Promise.withResolvers<Result>()
    this.#exits.set(processId, exit)
    return exit
  }

  #lose(): void {
    for (const waiting of [...this.#answers.values(), ...this.#exits.values()]) waiting.reject(new Error('rexd is gone'))
  }
}
