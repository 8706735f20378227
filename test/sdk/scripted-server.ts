import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'

import { connect, type ConnectOptions, type RexdClient } from '../../src/sdk/client.ts'
import type { RexdSession } from '../../src/sdk/session.ts'
import type { TransportEvents, TransportFactory } from '../../src/sdk/transport.ts'

export interface Asked {
  readonly id: number
  readonly method: string
  readonly params: Readonly<Record<string, unknown>>
}

/** One connection of a server that does what the test says. */
export class ScriptedLine {
  readonly #events: TransportEvents
  readonly #asked: Asked[] = []
  #waiting: ((asked: Asked) => void)[] = []
  #behind: { readonly promise: Promise<void>; readonly resolve: () => void } | null = null
  paused = false
  closed = false

  constructor(events: TransportEvents) {
    this.#events = events
  }

  /** Returns the next request, and waits for it if necessary. */
  async next(method?: string): Promise<Asked> {
    const asked = this.#asked.shift() ?? (await new Promise<Asked>((resolve) => this.#waiting.push(resolve)))
    if (method !== undefined) assert.equal(asked.method, method)
    return asked
  }

  /** Requests that the test has not examined. */
  get unread(): readonly Asked[] {
    return this.#asked
  }

  say(message: object | string): void {
    this.#events.onMessage(typeof message === 'string' ? message : JSON.stringify(message))
  }

  answer({ id }: Asked, result: unknown): void {
    this.say({ jsonrpc: '2.0', id, result })
  }

  refuse({ id }: Asked, error: object): void {
    this.say({ jsonrpc: '2.0', id, error })
  }

  event(method: string, params: object): void {
    this.say({ jsonrpc: '2.0', method, params })
  }

  lose(error: Error | null = new Error('the cable was cut')): void {
    this.#events.onClosed(error)
  }

  /** Messages that are sent after this call wait until `catchUp`. */
  fallBehind(): void {
    let resolve = (): void => undefined
    const promise = new Promise<void>((done) => (resolve = done))
    this.#behind = { promise, resolve }
  }

  catchUp(): void {
    this.#behind?.resolve()
    this.#behind = null
  }

  receive(text: string): void | Promise<void> {
    const asked = JSON.parse(text) as Asked
    const waiting = this.#waiting.shift()
    if (waiting === undefined) this.#asked.push(asked)
    else waiting(asked)
    return this.#behind?.promise
  }
}

/** A server in this process. Each opening creates a new line. */
export class ScriptedServer {
  readonly lines: ScriptedLine[] = []
  readonly factory: TransportFactory
  /** The errors of the next openings, in order. */
  readonly failures: Error[] = []
  tries = 0

  constructor(init: { again?: boolean; keepsSessions?: boolean } = {}) {
    this.factory = {
      name: 'a script',
      again: init.again ?? true,
      keepsSessions: init.keepsSessions ?? false,
      open: async (events) => {
        this.tries += 1
        const failure = this.failures.shift()
        if (failure !== undefined) throw failure
        const line = new ScriptedLine(events)
        this.lines.push(line)
        return {
          send: (text) => line.receive(text),
          pause: () => void (line.paused = true),
          resume: () => void (line.paused = false),
          close: async () => void (line.closed = true),
        }
      },
    }
  }

  get line(): ScriptedLine {
    return this.lines.at(-1)!
  }
}

export const OPENED = {
  session_id: 's_1',
  protocol: 'rexd/1',
  server_version: '9.9.9',
  capabilities: ['exec', 'exec.input', 'fs.read', 'fs.write', 'events'],
  limits: { max_file_read_bytes: 1024 },
  workspace_roots: ['/srv/app'],
}

export interface ScriptedSession {
  readonly server: ScriptedServer
  readonly client: RexdClient
  readonly session: RexdSession
}

/** A session with a scripted server. */
export const scripted = async (t: TestContext, options: Partial<ConnectOptions> = {}): Promise<ScriptedSession> => {
  const server = new ScriptedServer()
  const client = await connect({ transport: server.factory, ...options })
  t.after(async () => client.close())
  const opening = client.open({ clientName: 'test' })
  server.line.answer(await server.line.next('session.open'), OPENED)
  return { server, client, session: await opening }
}

export const EXIT = { exit_code: 0, signal: null, timed_out: false, duration_ms: 1, bytes_stdout: 0, bytes_stderr: 0, truncated: false }
export const OF_1 = { session_id: 's_1', process_id: 'p_1' }

/** Answers the next request, which must start a process. */
export const startNext = async (line: ScriptedLine, processId = 'p_1'): Promise<Asked> => {
  const asked = await line.next('exec.start')
  line.answer(asked, { process_id: processId, started_at: '2026-01-01T00:00:00.000Z' })
  return asked
}

export const output = (seq: number, data: string, encoding = 'utf8'): object => ({ ...OF_1, seq, data, encoding })
