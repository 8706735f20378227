import {
  type JSONRPCMessage,
  type Transport,
  isJSONRPCErrorResponse,
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResultResponse,
} from '@modelcontextprotocol/server'
import type { Readable, Writable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { Clock } from '../../base/clock.ts'
import { AppError, ERROR_TABLE } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { Condition } from '../../base/wait-queue.ts'
import { MAX_MCP_BACKLOG, MAX_MCP_CALLS, MAX_MCP_CALL_BYTES, MAX_MCP_MESSAGE } from '../../protocol/limits/tools.ts'
import { type Line, LineSplitter, jsonText } from '../../protocol/lines.ts'
import { SkippedId } from '../../protocol/skipped-id.ts'
import { utf8Text } from '../../protocol/text.ts'
import { BATCH_VERSION, Batches, MAX_MCP_BATCH } from './batches.ts'

type RequestId = string | number

/** Codes of JSON-RPC 2.0. */
const PARSE_ERROR = -32700
const INVALID_REQUEST = -32600
const TOO_MANY = ERROR_TABLE.rate_limited.rpc

/** Maximum number of answers that are made at the same time. */
const MAX_ANSWERS = 4
/** Maximum length of an ID that is repeated in the answer to an invalid message. */
const MAX_ID = 256

/** A notification that is dropped while the client does not read. */
const PROGRESS = 'notifications/progress'

/** Small calls of this tool get extra slots, because ending a run releases memory. */
const ENDS_RUNS = 'exec_kill'
const MAX_ENDING_BYTES = 4_096
/** A request that is answered only when the connection ends. */
const STAYS = 'subscriptions/listen'
/** After this many messages their answers are made, so that a slow client delays its next messages. */
const MESSAGES_AT_ONCE = 64

interface InFlight {
  readonly bytes: number
  readonly stays: boolean
  /** A tool is working on the call and holds its input. */
  works: boolean
  cancelled: boolean
  /** Set while the answer is made. */
  leave: (() => void) | null
}

/**
 * Transport of the Model Context Protocol, one message per line. Input is bounded in size and number, and a client that does not read its
 * answers delays its next calls. An invalid line is answered with an error.
 */
export class LineTransport implements Transport {
  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: (message: JSONRPCMessage) => void
  readonly #clock: Clock
  readonly #input: Readable
  readonly #output: Writable
  /** Finds the ID in a message that is too long. */
  readonly #skipped = new SkippedId()
  readonly #drained = new Condition()
  readonly #idle = new Condition()
  readonly #answers = new Semaphore({ limit: MAX_ANSWERS })
  readonly #calls = new Map<RequestId, InFlight>()
  readonly #batches = new Batches()
  /** Whether the negotiated version of the protocol has batches. */
  #takesBatches = false
  readonly #ended = Promise.withResolvers<void>()
  #bytes = 0
  /** Number of calls that stay open until the connection ends. */
  #staying = 0
  #closed = false

  constructor(deps: { readonly input: Readable; readonly output: Writable; readonly clock: Clock }) {
    this.#clock = deps.clock
    this.#input = deps.input
    this.#output = deps.output
  }

  /** Resolves when the client has closed its input or output. */
  get ended(): Promise<void> {
    return this.#ended.promise
  }

  /** No more messages are read or written. */
  get closed(): boolean {
    return this.#closed
  }

  async start(): Promise<void> {
    const gone = (): void => void this.close()
    this.#output.on('error', gone).on('close', gone)
    this.#output.on('drain', () => this.#drained.notifyAll())
    this.#read().then(this.#ended.resolve, this.#ended.resolve)
  }

  /** Resolves when the message was written or the client is gone. Progress is dropped while the client does not read. */
  async send(message: JSONRPCMessage): Promise<void> {
    if (this.#closed || (this.#isBehind && isJSONRPCNotification(message) && message.method === PROGRESS)) return
    if (isJSONRPCResultResponse(message)) this.#takesBatches ||= message.result['protocolVersion'] === BATCH_VERSION
    if (!isJSONRPCResultResponse(message) && !isJSONRPCErrorResponse(message)) return this.#write(jsonText(message))
    this.#answer(message.id ?? null, jsonText(message))
    this.#settle(message.id)
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#input.destroy()
    for (const id of this.#calls.keys()) this.#settle(id)
    this.#drained.notifyAll()
    this.#ended.resolve()
    this.onclose?.()
  }

  /** Runs the work of a tool. The call counts until it is done. Throws `bad_request` if the call was cancelled before. */
  async working<T>(id: RequestId, work: () => Promise<T>): Promise<T> {
    const call = this.#calls.get(id)
    if (call === undefined) throw new AppError('bad_request', 'it was cancelled before it started')
    call.works = true
    try {
      return await work()
    } finally {
      call.works = false
      if (call.cancelled && this.#calls.get(id) === call) this.#settle(id)
    }
  }

  /** Resolves when the answer may be made. Few are made at once, and no new ones while others wait. Throws the signal's reason. */
  async answering(id: RequestId, signal: AbortSignal): Promise<void> {
    const leave = await this.#answers.acquire(signal)
    const call = this.#calls.get(id)
    if (call === undefined) return leave()
    call.leave = leave
    signal.addEventListener('abort', () => this.#settle(id), { once: true })
    await this.room(signal)
  }

  /** Resolves when the client has read most of the output. */
  async room(signal: AbortSignal): Promise<void> {
    while (this.#isBehind && !signal.aborted) await this.#drained.waitAtMost({ clock: this.#clock, timeoutMs: null, signal })
    signal.throwIfAborted()
  }

  /** Resolves when all calls are answered and the answers were read. */
  async settled(): Promise<void> {
    while (this.#isAsked) await this.#idle.wait()
    while (!this.#closed && this.#output.writableLength > 0) await new Promise<void>((resolve) => this.#output.write('', () => resolve()))
  }

  get #isBehind(): boolean {
    return !this.#closed && this.#output.writableLength > MAX_MCP_BACKLOG
  }

  get #isAsked(): boolean {
    return this.#calls.size > this.#staying
  }

  async #read(): Promise<void> {
    const lines = new LineSplitter({ max: MAX_MCP_MESSAGE, onSkipped: (part) => this.#skipped.add(part) })
    let taken = 0
    for await (const chunk of this.#input as AsyncIterable<Buffer>) {
      for (const line of lines.push(chunk)) {
        this.#take(line)
        taken += 1
        // Answers that need no waiting are made in this turn.
        if (taken % MESSAGES_AT_ONCE === 0) await setImmediate()
        while (this.#isBehind) await this.#drained.wait()
      }
    }
    const rest = lines.rest()
    if (rest !== null) this.#take(rest)
  }

  #take(line: Line): void {
    if (line === 'too_long')
      return this.#refuse(asId(this.#skipped.take()), INVALID_REQUEST, `a message has at most ${MAX_MCP_MESSAGE} bytes`)
    const text = utf8Text(line)
    if (text === null) return this.#refuse(null, PARSE_ERROR, 'the message is not valid UTF-8')
    if (text.trim() === '') return
    let message: unknown
    try {
      message = JSON.parse(text)
    } catch {
      return this.#refuse(null, PARSE_ERROR, 'the message is not valid JSON')
    }
    if (Array.isArray(message) && this.#takesBatches) this.#takeBatch(message, line.length)
    else this.#dispatch(message, line.length)
  }

  /** Each message counts with its share of the bytes. */
  #takeBatch(messages: readonly unknown[], bytes: number): void {
    if (messages.length === 0 || messages.length > MAX_MCP_BATCH)
      return this.#refuse(null, INVALID_REQUEST, `a batch has 1 to ${MAX_MCP_BATCH} messages`)
    const ids = messages.filter(isJSONRPCRequest).map(({ id }) => id)
    if (new Set(ids).size < ids.length || ids.some((id) => this.#calls.has(id)))
      return this.#refuse(null, INVALID_REQUEST, 'an id in the batch is already used by a pending request')
    this.#batches.open(ids)
    for (const message of messages) this.#dispatch(message, Math.ceil(bytes / messages.length))
  }

  #dispatch(message: unknown, bytes: number): void {
    if (isJSONRPCRequest(message)) {
      const problem = this.#problemOf(message, bytes)
      if (problem !== null) return this.#refuse(message.id, ...problem)
      const stays = message.method === STAYS
      this.#calls.set(message.id, { bytes, stays, works: false, cancelled: false, leave: null })
      if (stays) this.#staying += 1
      this.#bytes += bytes
    } else if (isJSONRPCNotification(message)) {
      this.onmessage?.(message)
      const cancelled = message.method === 'notifications/cancelled' ? message.params?.['requestId'] : undefined
      if (typeof cancelled === 'string' || typeof cancelled === 'number') this.#cancel(cancelled)
      return
    } else if (!isJSONRPCResultResponse(message) && !isJSONRPCErrorResponse(message))
      return this.#refuse(idOf(message), INVALID_REQUEST, 'the message is not a request, notification or response of JSON-RPC 2.0')
    this.onmessage?.(message)
  }

  #problemOf(message: Extract<JSONRPCMessage, { method: string; id: RequestId }>, bytes: number): [code: number, text: string] | null {
    if (this.#calls.has(message.id)) return [INVALID_REQUEST, 'the id is already used by a pending request']
    const isFull = this.#calls.size >= MAX_MCP_CALLS || this.#bytes + bytes > MAX_MCP_CALL_BYTES
    const endsRuns = message.method === 'tools/call' && message.params?.['name'] === ENDS_RUNS && bytes <= MAX_ENDING_BYTES
    if (!isFull || (endsRuns && this.#calls.size < 2 * MAX_MCP_CALLS)) return null
    return [TOO_MANY, `${this.#calls.size} calls are pending, which is the limit: wait for their answers, or cancel some`]
  }

  #refuse(id: RequestId | null, code: number, message: string): void {
    this.#answer(id, jsonText({ jsonrpc: '2.0', id, error: { code, message } }))
  }

  #answer(id: RequestId | null, text: string): void {
    const due = id === null ? text : this.#batches.answer(id, text)
    if (due !== null) this.#write(due)
  }

  #write(text: string): void {
    if (!this.#closed) this.#output.write(`${text}\n`)
  }

  /** A cancelled call gets no answer, but it counts until its tool is done. */
  #cancel(id: RequestId): void {
    const call = this.#calls.get(id)
    if (call === undefined) return
    call.cancelled = true
    if (!call.works) this.#settle(id)
  }

  #settle(id: RequestId | undefined): void {
    const call = id === undefined ? undefined : this.#calls.get(id)
    if (id === undefined || call === undefined) return
    // A cancelled request of a batch gets no answer.
    const due = this.#batches.drop(id)
    if (due !== null) this.#write(due)
    this.#calls.delete(id)
    this.#bytes -= call.bytes
    if (call.stays) this.#staying -= 1
    call.leave?.()
    if (!this.#isAsked) this.#idle.notifyAll()
  }
}

const idOf = (message: unknown): RequestId | null =>
  asId(typeof message === 'object' && message !== null && 'id' in message ? message.id : null)

const asId = (id: unknown): RequestId | null => (typeof id === 'number' || (typeof id === 'string' && id.length <= MAX_ID) ? id : null)
