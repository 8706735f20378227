import { MAX_RPC_MESSAGE } from '../protocol/limits/rexd.ts'
import { jsonText } from '../protocol/lines.ts'
import type { Method, Params } from '../protocol/rexd/methods.ts'
import type { EventParams } from '../protocol/rexd/results.ts'
import { toBase64 } from '../protocol/text.ts'
import { RexdDisconnected, RexdError } from './errors.ts'
import type { IncomingMessage } from './incoming.ts'
import { whenAborted } from './promises.ts'

/** Transport of a call. Calls of a session use the session's transport. */
export interface CallScope {
  /** The current transport, or null. */
  readonly transport: object | null
  /** Whether a new transport will come while `transport` is null. */
  readonly lasting: boolean
}

/** Methods that have no further effect when repeated, so they are sent again after a lost connection. */
const ASKED_AGAIN: ReadonlySet<Method> = new Set([
  'session.info',
  'session.events',
  'session.close',
  'exec.wait',
  'fs.read',
  'fs.list',
  'fs.glob',
  'fs.stat',
])

export interface CallInit<M extends Method, T> {
  readonly method: M
  readonly params: Params<M>
  readonly signal?: AbortSignal | undefined
  readonly scope?: CallScope | undefined
  /** Bytes to send as `params.content` in base64, or as they are if the transport can. */
  readonly content?: Uint8Array | undefined
  /** Makes the caller's result, before any later message is processed. May throw. */
  accept(result: unknown): T
  /** Does the same for an answer that carries its content as bytes. Absent means that `accept` gets it in base64. */
  acceptContent?(result: unknown, content: Uint8Array): T
  /** Called instead if the caller has aborted. */
  late?(result: unknown): void
  /** Called when an approver is asked, also if the caller has aborted. */
  readonly waiting?: CallWaiting | undefined
}

export type CallWaiting = (waiting: EventParams<'exec.waiting'>) => void

export interface SendableCall {
  readonly content: Uint8Array | null
  /** Its JSON. `content` replaces that of its parameters. */
  text(content?: string): string
}

interface Call extends SendableCall {
  readonly id: number
  readonly method: Method
  readonly scope: CallScope | undefined
  readonly accept: (answer: Succeeded) => void
  readonly reject: (error: unknown) => void
  readonly late: ((result: unknown) => void) | undefined
  readonly waiting: CallWaiting | undefined
  /** The caller has aborted. */
  abandoned: boolean
}

type Answer = Extract<IncomingMessage, { kind: 'result' | 'failure' }>
type Succeeded = Extract<IncomingMessage, { kind: 'result' }>

/** The calls of a connection, first those that wait to be sent, in order, then those that wait for an answer. */
export class Calls {
  readonly #waiting: Call[] = []
  readonly #sent = new Map<number, Call>()
  #last = 0

  /** Whether a call waits to be sent. */
  get waiting(): boolean {
    return this.#waiting.length > 0
  }

  /** Whether a caller waits for an answer, or must learn of a late one. */
  get expecting(): boolean {
    return [...this.#sent.values()].some((call) => !call.abandoned || call.late !== undefined)
  }

  /** Rejects with the error of the server, with `RexdDisconnected`, or with the signal's reason. */
  async add<M extends Method, T>(init: CallInit<M, T>): Promise<T> {
    const { method, params, signal, scope, waiting, content = null } = init
    signal?.throwIfAborted()
    const id = ++this.#last
    const json = jsonText({ jsonrpc: '2.0', id, method, params })
    const text = (sent?: string): string =>
      sent === undefined ? json : jsonText({ jsonrpc: '2.0', id, method, params: { ...params, content: sent } })
    requireSendable(json, content, method)
    return new Promise<T>((resolve, reject) => {
      const accept = (answer: Succeeded): void => resolve(acceptAnswer(init, answer))
      const late = init.late === undefined ? undefined : (result: unknown): void => init.late?.(result)
      let release = (): void => undefined
      const settling =
        <A>(settle: (value: A) => void) =>
        (value: A): void => {
          release()
          settle(value)
        }
      const call: Call = {
        id,
        method,
        content,
        text,
        scope,
        accept: settling(accept),
        reject: settling(reject),
        late,
        waiting,
        abandoned: false,
      }
      this.#waiting.push(call)
      release = whenAborted(signal, (reason) => this.#abandon(call, reason))
    })
  }

  /** The next call for this transport, which counts as sent from now on. */
  take(transport: object): SendableCall | null {
    const at = this.#waiting.findIndex(({ scope }) => scope === undefined || scope.transport === transport)
    const [call] = at === -1 ? [] : this.#waiting.splice(at, 1)
    if (call === undefined) return null
    this.#sent.set(call.id, call)
    return call
  }

  /** An approver is asked about a call. False if no caller listens. */
  waits(params: EventParams<'exec.waiting'>): boolean {
    const call = typeof params.call === 'number' ? this.#sent.get(params.call) : undefined
    call?.waiting?.(params)
    return call?.waiting !== undefined
  }

  /** The method that the answer belongs to, or null if there was no such call. */
  settle(answer: Answer): Method | null {
    const call = this.#sent.get(answer.id)
    if (call === undefined) return null
    this.#sent.delete(answer.id)
    if (answer.kind === 'failure') call.reject(answer.error)
    else if (call.abandoned) call.late?.(answer.result)
    else this.#accept(call, answer)
    return call.method
  }

  /** Rejects the calls sent over a lost transport, except those of `ASKED_AGAIN` whose scope lasts, which wait for the next one. */
  lose(message: string, cause: unknown): void {
    const sent = [...this.#sent.values()]
    this.#sent.clear()
    const again = sent.filter(({ scope, method, abandoned }) => scope?.lasting === true && ASKED_AGAIN.has(method) && !abandoned)
    for (const call of sent)
      if (!again.includes(call)) call.reject(new RexdDisconnected(`${call.method}: ${message}`, { sent: true, cause }))
    this.#waiting.unshift(...again)
    this.sweep(message, cause)
  }

  /** Rejects the calls whose scope has no further transport. */
  sweep(message: string, cause: unknown): void {
    this.#drop(({ scope }) => scope !== undefined && scope.transport === null && !scope.lasting, message, cause)
  }

  /** Rejects all calls that wait to be sent. */
  refuse(message: string, cause: unknown): void {
    this.#drop(() => true, message, cause)
  }

  #drop(which: (call: Call) => boolean, message: string, cause: unknown): void {
    const dropped = this.#waiting.filter(which)
    const kept = this.#waiting.filter((call) => !which(call))
    this.#waiting.splice(0, this.#waiting.length, ...kept)
    for (const call of dropped) call.reject(new RexdDisconnected(`${call.method}: ${message}`, { sent: false, cause }))
  }

  #accept(call: Call, answer: Succeeded): void {
    try {
      call.accept(answer)
    } catch (error) {
      call.reject(error)
    }
  }

  #abandon(call: Call, reason: unknown): void {
    call.abandoned = true
    const at = this.#waiting.indexOf(call)
    if (at !== -1) this.#waiting.splice(at, 1)
    call.reject(reason)
  }
}

const acceptAnswer = <M extends Method, T>(init: CallInit<M, T>, { result, content }: Succeeded): T => {
  if (content === null) return init.accept(result)
  if (init.acceptContent !== undefined) return init.acceptContent(result, content)
  return init.accept({ ...(result as object), content: toBase64(content) })
}

/** Throws `resource_limit`. A server cannot name the call of a message that is too long, and closes the connection. */
const requireSendable = (text: string, content: Uint8Array | null, method: Method): void => {
  // It may be sent in base64.
  const following = content === null ? 0 : Math.ceil(content.length / 3) * 4
  // A UTF-16 code unit has at most three bytes in UTF-8, so most texts need not be measured.
  if (text.length * 3 + following <= MAX_RPC_MESSAGE) return
  const bytes = Buffer.byteLength(text) + following
  if (bytes <= MAX_RPC_MESSAGE) return
  const data = { code: 'resource_limit', limit: 'message', asked: bytes, max: MAX_RPC_MESSAGE }
  throw new RexdError({ code: -32_008, message: `${method}: a message has at most ${MAX_RPC_MESSAGE} bytes, not ${bytes}`, data })
}
