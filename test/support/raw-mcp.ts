import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { TestContext } from 'node:test'

import { LATEST_PROTOCOL_VERSION } from '@modelcontextprotocol/client'

import { soon } from './local-engine.ts'
import { X0X, type McpPlace } from './mcp-server.ts'

interface Answer {
  readonly id: number | null
  readonly error?: { readonly code: number; readonly message: string }
  readonly result?: {
    readonly isError?: boolean
    readonly structuredContent?: Record<string, unknown>
    readonly content?: readonly { readonly text?: string }[]
  }
}

export interface RawOptions {
  readonly whoami?: string
  readonly env?: Readonly<Record<string, string>>
  /** Starts it in a separate process group. */
  readonly detached?: boolean
}

/** `x0x mcp` with line-by-line access, for clients that break the protocol. */
export class RawServer {
  readonly child: ChildProcess
  readonly answers: Answer[] = []
  #rest = ''

  constructor({ config }: McpPlace, { whoami = 'hostile', env = {}, detached = false }: RawOptions = {}) {
    const args = [X0X, 'mcp', '--whoami', whoami, '--config', config]
    this.child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'ignore'], env: { ...process.env, ...env }, detached })
    // Data that is in transit when the server ends is lost.
    this.child.stdin?.on('error', () => undefined)
  }

  static async start(t: TestContext, place: McpPlace, options: RawOptions = {}): Promise<RawServer> {
    const server = new RawServer(place, options)
    const { child } = server
    t.after(async () => {
      child.kill('SIGKILL')
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    })
    server.read()
    const params = { protocolVersion: LATEST_PROTOCOL_VERSION, capabilities: {}, clientInfo: { name: 'raw', version: '1' } }
    server.send({ id: 0, method: 'initialize', params }, { method: 'notifications/initialized' })
    await server.answer(0)
    return server
  }

  read(): void {
    this.child.stdout?.on('data', (part: Buffer) => {
      const lines = (this.#rest + part.toString()).split('\n')
      this.#rest = lines.pop() ?? ''
      for (const line of lines) this.answers.push(JSON.parse(line) as Answer)
    })
  }

  send(...messages: readonly (object | string)[]): void {
    const lines = messages.map((message) => (typeof message === 'string' ? message : JSON.stringify({ jsonrpc: '2.0', ...message })))
    this.child.stdin?.write(`${lines.join('\n')}\n`)
  }

  async answer(id: number | null): Promise<Answer> {
    assert.ok(await soon(() => this.answers.some((one) => one.id === id)), `no answer to ${id}`)
    return this.answers.find((one) => one.id === id)!
  }

  /** Memory in bytes. */
  async memory(): Promise<number> {
    const status = await readFile(`/proc/${this.child.pid}/status`, 'utf8')
    return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024
  }
}

/** A tool call. */
export const callOf = (id: number, name: string, args: object) => ({ id, method: 'tools/call', params: { name, arguments: args } })
