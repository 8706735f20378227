import { mkdtemp, rm } from 'node:fs/promises'
import { request as httpRequest, type ClientRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/log.ts'
import type { RestServices, RestInit } from '../../src/doors/rest/services.ts'
import { NO_SNAPSHOT } from '../../src/executor-api/snapshot.ts'
import { RestServer } from '../../src/doors/rest/server.ts'
import { newLifecycleLog } from './lifecycle.ts'

export const AGENT = 'a'.repeat(64)
export const MACHINE = 'b'.repeat(64)
export const OTHER_AGENT = 'c'.repeat(64)
export const TOKEN = 'f'.repeat(64)

const refuse = (what: string) => (): never => {
  throw new Error(`the test did not expect ${what}`)
}

/** Components without function that only know their identity. A test replaces those that it needs. */
export const restComponents = (over: Partial<RestServices> = {}): RestServices => ({
  runner: {
    run: refuse('a run'),
    checkRoom: () => undefined,
    cancel: refuse('a cancel'),
    sessions: () => [],
    output: refuse('a look at output'),
    diagnostics: () => ({ runs_requested: 0 }),
  },
  fanouts: {
    run: refuse('a fan-out'),
    checkRoom: () => undefined,
    cancel: refuse('a cancel'),
    sessions: () => [],
    stopAll: () => undefined,
  },
  detached: {
    start: refuse('a detached run'),
    list: refuse('a list of detached runs'),
    get: refuse('a detached run'),
    refresh: refuse('a question to a host'),
    attach: refuse('an attach'),
    wait: refuse('a wait'),
    cancel: refuse('a cancel'),
    forget: refuse('a forget'),
  },
  files: {
    stat: refuse('a question for a file'),
    list: refuse('a listing'),
    digest: refuse('a digest'),
    received: refuse('a question for an upload'),
    mkdir: refuse('a directory'),
    append: refuse('bytes for a file'),
    download: refuse('a download'),
    upload: refuse('an upload'),
  },
  rules: { ask: refuse('a question for rules') },
  events: newLifecycleLog(),
  directory: { resolve: (agent) => agent, select: refuse('a choice of hosts') },
  executor: {
    identity: { agentId: AGENT, machineId: MACHINE, agentPublicKey: new Uint8Array(1952) },
    isDraining: false,
    snapshot: NO_SNAPSHOT,
    query: async () => ({ status: 'enabled', journal: { writable: true } }),
    operate: refuse('an operation'),
    evaluateTrust: refuse('an evaluation'),
    signCard: refuse('a signature'),
    httpRefused: () => undefined,
    tokens: null,
    onTokens: () => () => undefined,
  },
  links: { link: refuse('a link'), list: () => [] },
  node: { addresses: () => ['/ip4/127.0.0.1/tcp/1/p2p/x'], listening: true },
  view: { peers: () => [], counts: () => ({ heard: 0, known: 0, standing: 0, connected: 0 }), diagnostics: () => ({ listening: true }) },
  pings: { ping: refuse('a ping') },
  messages: { send: refuse('a message'), subscribe: refuse('a listener') },
  dmCounters: { snapshot: () => ({ links_opened: 0 }) },
  metrics: { text: async () => '' },
  clock: systemClock,
  log: createLogger({ name: 'test', level: 'error', destination: { write: () => undefined } }),
  ...over,
})

export interface TestDoor {
  readonly door: RestServer
  readonly port: number
  readonly socketPath: string
  /** Sends a request with the token and waits for its complete answer. */
  call(method: string, path: string, options?: CallOptions): Promise<Answer>
  /** Begins a request. The caller writes its body. */
  open(method: string, path: string, options?: CallOptions): ClientRequest
}

export interface CallOptions {
  readonly headers?: Record<string, string | undefined>
  /** An object is sent as JSON. */
  readonly body?: unknown
  readonly viaSocket?: boolean
  readonly token?: string | null
}

export interface Answer {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  readonly bytes: Buffer
  readonly text: string
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly json: any
}

/** A REST server on both of its listeners, in a temporary directory. The test closes it. */
export const startDoor = async (t: TestContext, over: Partial<RestServices> = {}, init: Partial<RestInit> = {}): Promise<TestDoor> => {
  const directory = await mkdtemp(join(tmpdir(), 'x0x-door-'))
  const socketPath = join(directory, 'api.sock')
  const door = new RestServer(restComponents(over), {
    port: 0,
    socket: { path: socketPath },
    token: TOKEN,
    displayName: 'tester',
    version: '1.2.3',
    ...init,
  })
  t.after(async () => {
    await door.stop()
    await rm(directory, { recursive: true, maxRetries: 10 })
  })
  await door.start()
  const { port } = door
  const open = (method: string, path: string, options: CallOptions = {}): ClientRequest => {
    const where: RequestOptions = options.viaSocket === true ? { socketPath } : { host: '127.0.0.1', port }
    const token = options.token === undefined ? TOKEN : options.token
    const headers = {
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
      ...(options.body === undefined || options.headers?.['content-type'] !== undefined ? {} : { 'content-type': 'application/json' }),
      ...options.headers,
    }
    return httpRequest({
      ...where,
      method,
      path,
      agent: false,
      headers: Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined)),
    })
  }
  const call = async (method: string, path: string, options: CallOptions = {}): Promise<Answer> => {
    const request = open(method, path, options)
    const { body } = options
    request.end(body === undefined ? undefined : typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body))
    return readAnswer(await response(request))
  }
  return { door, port, socketPath, call, open }
}

export const response = async (request: ClientRequest): Promise<IncomingMessage> => {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  request.once('response', resolve)
  request.once('error', reject)
  return promise
}

export const readAnswer = async (message: IncomingMessage): Promise<Answer> => {
  const parts: Buffer[] = []
  for await (const part of message) parts.push(part as Buffer)
  const bytes = Buffer.concat(parts)
  const text = bytes.toString()
  const isJson = message.headers['content-type']?.startsWith('application/json') === true
  return {
    status: message.statusCode ?? 0,
    headers: message.headers,
    bytes,
    text,
    json: isJson && text !== '' ? (JSON.parse(text) as unknown) : undefined,
  }
}
