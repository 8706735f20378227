import type { Socket } from 'node:net'

import { AppError, errorCodeOf, errorText } from '../base/errors.ts'
import { MAX_DESK_UNREAD } from '../protocol/desk-limits.ts'
import { readToEngineBody, type EngineBody, type ModeOverride, type ToEngineBody } from '../protocol/desk.ts'
import type { Question, SealedAnswer } from '../protocol/question.ts'
import type { Waiting } from './desk-link.ts'
import type { Seal } from './seal.ts'

export const unavailable = (why: string, cause?: unknown): AppError =>
  new AppError('approval_unavailable', `nobody can be asked whether this may run (${why}): start x0xd --init, or x0x desk, as this user`, {
    cause,
  })

/** What waits for a line of the desk. */
interface Asked {
  readonly onPending: (waiting: Waiting) => void
  readonly resolve: (value: SealedAnswer | ModeOverride | null) => void
  readonly reject: (error: AppError) => void
}

export interface EngineConnectionInit {
  readonly socket: Socket
  readonly seal: Seal
  readonly key: Uint8Array
  readonly lines: AsyncIterator<Buffer, void, undefined>
  /** Which runs are followed from now on; none, once it ends. */
  readonly onFollow: (runs: readonly string[]) => void
}

/** One connection of an engine to its desk, that is open. */
export class EngineConnection {
  readonly key: Uint8Array
  readonly #socket: Socket
  readonly #seal: Seal
  readonly #asked = new Map<number, Asked>()
  readonly #onFollow: EngineConnectionInit['onFollow']
  #count = 0
  #isOpen = true

  constructor(init: EngineConnectionInit) {
    this.key = init.key
    this.#onFollow = init.onFollow
    this.#socket = init.socket
    this.#seal = init.seal
    const lost = (error?: unknown): void => this.close(unavailable(error === undefined ? 'the desk went away' : errorText(error)))
    this.#read(init.lines).then(lost, lost)
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** The desk has not read all that it was told. */
  get isBehind(): boolean {
    return this.#socket.writableLength > 0
  }

  close(why: AppError): void {
    if (this.#isOpen) this.#onFollow([])
    this.#isOpen = false
    this.#socket.destroy()
    for (const { reject } of this.#asked.values()) reject(why)
    this.#asked.clear()
  }

  async ask(question: Question, signal: AbortSignal, onPending: (waiting: Waiting) => void): Promise<SealedAnswer> {
    const id = ++this.#count
    const withdraw = (): void => {
      if (this.#asked.delete(id)) this.send({ type: 'withdraw', id })
    }
    return (await this.#wait({ type: 'ask', id, question }, id, onPending, signal, withdraw)) as SealedAnswer
  }

  async override(session: string, agent: string | null, signal: AbortSignal): Promise<ModeOverride | null> {
    const id = ++this.#count
    const request = { type: 'override_get', id, session, agent } as const
    return (await this.#wait(
      request,
      id,
      () => undefined,
      signal,
      () => this.#asked.delete(id),
    )) as ModeOverride | null
  }

  send(body: EngineBody): void {
    if (this.#isOpen) this.#socket.write(this.#seal.line(body))
    if (this.#socket.writableLength > MAX_DESK_UNREAD) this.close(unavailable('the desk does not take what it is asked'))
  }

  async #wait(
    body: EngineBody,
    id: number,
    onPending: Asked['onPending'],
    signal: AbortSignal,
    drop: () => void,
  ): Promise<SealedAnswer | ModeOverride | null> {
    // It may have ended while this waited for its turn: nobody would answer.
    if (!this.#isOpen) throw unavailable('the desk went away')
    const { promise, resolve, reject } = Promise.withResolvers<SealedAnswer | ModeOverride | null>()
    const gone = (): void => {
      drop()
      reject(signal.reason)
    }
    signal.addEventListener('abort', gone, { once: true })
    this.#asked.set(id, { onPending, resolve, reject })
    this.send(body)
    try {
      return await promise
    } finally {
      signal.removeEventListener('abort', gone)
      this.#asked.delete(id)
    }
  }

  async #read(lines: AsyncIterator<Buffer, void, undefined>): Promise<void> {
    for (let next = await lines.next(); next.done !== true; next = await lines.next()) this.#take(bodyOf(this.#seal, next.value))
  }

  #take(body: ToEngineBody): void {
    if (body.type === 'opened') return
    if (body.type === 'follow') return this.#onFollow(body.runs)
    if (body.type === 'error' && body.id === null) throw unavailable(body.message)
    const asked = this.#asked.get(body.id ?? 0)
    switch (body.type) {
      case 'pending':
        return asked?.onPending({ question_id: body.question_id, expires_at_ms: body.expires_at_ms })
      case 'answer':
        return asked?.resolve(body.answer)
      case 'override':
        return asked?.resolve(body.override)
      case 'error': {
        const code = errorCodeOf(body.code)
        return asked?.reject(code === 'approval_unavailable' ? new AppError(code, body.message) : unavailable(body.message))
      }
    }
  }
}

export const bodyOf = (seal: Seal, line: Buffer): ToEngineBody => {
  const unsealed = seal.open(line)
  if (unsealed.kind === 'refused') throw unavailable(`what answers is not the desk: ${unsealed.problem}`)
  const body = readToEngineBody(unsealed.body)
  if (typeof body === 'string') throw unavailable(`the desk sent what is none of its lines: ${body}`)
  return body
}
