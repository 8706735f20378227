import { Agent, request, type IncomingMessage } from 'node:http'

import { RAW_RUN_TYPE } from '../../src/protocol/api/run-events.ts'

/** A client with keep-alive for one daemon's REST API on its unix socket. */
export class RestClient {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 256 })
  readonly #socketPath: string
  readonly #token: string

  constructor(init: { socketPath: string; token: string }) {
    this.#socketPath = init.socketPath
    this.#token = init.token
  }

  #open(path: string, body: unknown, accept: string, signal?: AbortSignal): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const call = request(
        {
          agent: this.#agent,
          ...(signal === undefined ? {} : { signal }),
          socketPath: this.#socketPath,
          path,
          method: 'POST',
          headers: { host: 'localhost', authorization: `Bearer ${this.#token}`, 'content-type': 'application/json', accept },
        },
        resolve,
      )
      call.on('error', reject)
      call.end(JSON.stringify(body))
    })
  }

  /** Returns the complete answer. Throws if it is missing or incomplete. */
  async post(path: string, body: unknown, options: { signal?: AbortSignal; accept?: string } = {}): Promise<string> {
    const response = await this.#open(path, body, options.accept ?? 'application/json', options.signal)
    const chunks: Buffer[] = []
    for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk)
    return Buffer.concat(chunks).toString()
  }

  /** Performs one run to its end. Throws unless it exits with 0. */
  async run(agentId: string, argv: readonly string[]): Promise<void> {
    const text = await this.post('/exec/run', { agent_id: agentId, argv })
    const result = JSON.parse(text) as { ok: boolean; code: number | null }
    if (!result.ok || result.code !== 0) throw new Error(text)
  }

  /** Returns the number of bytes in a streamed run's answer, and discards the bytes. */
  async drain(agentId: string, argv: readonly string[], accept = RAW_RUN_TYPE): Promise<number> {
    const response = await this.#open('/exec/run', { agent_id: agentId, argv }, accept)
    let received = 0
    let tail = ''
    for await (const chunk of response as AsyncIterable<Buffer>) {
      received += chunk.length
      tail = (tail + chunk.subarray(-1000).toString()).slice(-1000)
    }
    if (!tail.includes('"ok":true')) throw new Error(tail)
    return received
  }

  close(): void {
    this.#agent.destroy()
  }
}
