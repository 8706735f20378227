import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest, type RequestOptions } from 'node:https'
import type { TestContext } from 'node:test'

import { WebSocket, type ClientOptions } from 'ws'

import type { RexdServer } from './rexd-server.ts'

/** The address and the token of a server. */
export type Reached = Pick<RexdServer, 'url' | 'token'>

export interface HttpAnswer {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  readonly text: string
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly json: any
}

export interface Asking extends RequestOptions {
  /** Null sends no token. */
  readonly token?: string | null
  /** An object is sent as JSON. Several parts are sent in chunks. */
  readonly body?: object | string | Buffer
  readonly parts?: readonly Buffer[]
}

/** `unix:/path`, as `node:http` and `ws` expect it. */
const socketOf = (url: string): string | null => (url.startsWith('unix:') ? url.slice('unix:'.length) : null)
const webSocketUrl = (url: string, path: string): string => {
  const socketPath = socketOf(url)
  return socketPath === null ? `${url.replace('http', 'ws')}${path}` : `ws+unix:${socketPath}:${path}`
}

/** Sends one request with the token and returns the complete answer. */
export const ask = async (server: Reached, asking: Asking = {}): Promise<HttpAnswer> => {
  const { token = server.token, body, parts, headers, ...options } = asking
  const secure = server.url.startsWith('https:')
  const given = { 'content-type': 'application/json', ...(token === null ? {} : { authorization: `Bearer ${token}` }), ...headers }
  const known = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  const socketPath = socketOf(server.url)
  const request = (secure ? httpsRequest : httpRequest)(socketPath === null ? server.url : 'http://localhost', {
    method: 'POST',
    path: '/rpc',
    agent: false,
    headers: known,
    ...(socketPath === null ? {} : { socketPath }),
    ...options,
  })
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  request.once('response', resolve)
  request.once('error', reject)
  for (const part of parts ?? []) request.write(part)
  request.end(typeof body === 'object' && !Buffer.isBuffer(body) ? JSON.stringify(body) : body)
  const response = await promise
  const received: Buffer[] = []
  for await (const part of response as AsyncIterable<Buffer>) received.push(part)
  const text = Buffer.concat(received).toString()
  const isJson = response.headers['content-type'] === 'application/json' && text !== ''
  return { status: response.statusCode ?? 0, headers: response.headers, text, json: isJson ? (JSON.parse(text) as unknown) : undefined }
}

/** The error of a failed method. */
export class RpcRefused extends Error {
  readonly code: number
  readonly data: Readonly<Record<string, unknown>>

  constructor({ code, message, data }: { code: number; message: string; data?: Record<string, unknown> }) {
    super(message)
    this.code = code
    this.data = data ?? {}
  }
}

// oxlint-disable-next-line typescript/no-explicit-any
type Result = any

const resultOf = (answer: Result): Result => {
  if (answer.error !== undefined) throw new RpcRefused(answer.error)
  return answer.result
}

/** Calls a method by POST. */
export const post = async (server: Reached, method: string, params: object): Promise<Result> => {
  const { status, json } = await ask(server, { body: { jsonrpc: '2.0', id: 1, method, params } })
  assert.equal(status, 200)
  return resultOf(json)
}

export interface Notification {
  readonly method: string
  readonly params: Readonly<Record<string, Result>>
}

/** A WebSocket client, with the messages that it receives. */
export class SocketCaller {
  readonly socket: WebSocket
  /** Events in order of arrival. */
  readonly events: Notification[] = []
  readonly closed: Promise<{ code: number; reason: string }>
  readonly #answers = new Map<number, (answer: Result) => void>()
  readonly #watching = new Set<() => void>()
  #last = 0

  constructor(socket: WebSocket) {
    this.socket = socket
    this.closed = new Promise((resolve) => {
      socket.once('close', (code, reason) => resolve({ code, reason: reason.toString() }))
    })
    socket.on('error', () => undefined)
    socket.on('message', (data: Buffer) => this.#receive(data.toString()))
  }

  async call(method: string, params: object): Promise<Result> {
    const id = ++this.#last
    const { promise, resolve } = Promise.withResolvers<Result>()
    this.#answers.set(id, resolve)
    this.socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }))
    return resultOf(await promise)
  }

  /** Resolves when the events meet the condition. */
  async until(condition: (events: readonly Notification[]) => boolean): Promise<void> {
    if (condition(this.events)) return
    await new Promise<void>((resolve) => {
      const look = (): void => {
        if (!condition(this.events)) return
        this.#watching.delete(look)
        resolve()
      }
      this.#watching.add(look)
    })
  }

  async exit(): Promise<Notification> {
    const isExit = ({ method }: Notification): boolean => method === 'exec.exit' || method === 'exec.error'
    await this.until((events) => events.some(isExit))
    return this.events.find(isExit)!
  }

  #receive(text: string): void {
    const message: Result = JSON.parse(text)
    if (message.method === undefined) this.#answers.get(message.id)?.(message)
    else this.events.push(message)
    for (const look of this.#watching) look()
  }
}

/** An accepted WebSocket. The test closes it. */
export const connect = async (
  t: Pick<TestContext, 'after'>,
  { url, token }: Reached,
  options: ClientOptions & { readonly protocols?: readonly string[] } = {},
): Promise<SocketCaller> => {
  const { protocols = [], headers = { authorization: `Bearer ${token}` }, ...rest } = options
  const socket = new WebSocket(webSocketUrl(url, '/ws'), [...protocols], { headers, ...rest })
  t.after(() => socket.terminate())
  const caller = new SocketCaller(socket)
  await once(socket, 'open')
  return caller
}

/** The HTTP status of a refused WebSocket. */
export const refusedSocket = async (
  { url }: Pick<Reached, 'url'>,
  options: ClientOptions & { readonly protocols?: readonly string[]; readonly path?: string } = {},
): Promise<number> => {
  const { protocols = [], path = '/ws', ...rest } = options
  const socket = new WebSocket(webSocketUrl(url, path), [...protocols], rest)
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  socket.on('error', () => undefined)
  socket.once('open', () => reject(new Error('it was let in')))
  socket.once('unexpected-response', (_request, response) => resolve(response.statusCode ?? 0))
  try {
    return await promise
  } finally {
    socket.terminate()
  }
}

/** The output of one stream, from its events. */
export const outputOf = (events: readonly Notification[], name: 'stdout' | 'stderr' = 'stdout'): Buffer =>
  Buffer.concat(
    events
      .filter(({ method }) => method === `exec.${name}`)
      .map(({ params }) => Buffer.from(params['data'] as string, params['encoding'] as 'utf8' | 'base64')),
  )
