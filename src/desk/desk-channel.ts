import type { Socket } from 'node:net'
import { type Clock, systemClock } from '../base/clock.ts'
import { AppError, errorCodeOf } from '../base/errors.ts'
import { PendingReplies } from '../base/pending-replies.ts'
import { type DeskRole, type ToEngineBody, type ToApprovalClientBody, readHello } from '../protocol/desk/messages.ts'
import { DESK_OPEN_MS } from '../protocol/limits/approvals.ts'
import { linesOf } from '../protocol/lines.ts'
import { Seal } from './seal.ts'

export interface DeskChannelInit<Body> {
  readonly socket: Socket
  readonly clock?: Clock
  readonly role: DeskRole
  readonly name: string
  key(): Uint8Array | Promise<Uint8Array>
  readonly maxLine: number
  /** Parses the body of a line; a text describes the problem. */
  read(bytes: Uint8Array): Body | string
  /** Message if the approval service closes the connection after our proof. */
  readonly refused: string
  /** Error of pending requests when the connection is lost. */
  lost(): AppError
}

const broken = (problem: string): AppError => new AppError('malformed', `the approval service sent an invalid line: ${problem}`)

const errorOf = ({ code, message, won_by, decision }: Extract<ToApprovalClientBody, { type: 'error' }>): AppError =>
  new AppError(errorCodeOf(code), message, {
    data: { ...(won_by === undefined ? {} : { won_by }), ...(decision === undefined ? {} : { decision }) },
  })

/** A client's connection to the approval service, with its requests. Both ends have proven that they hold the same key. */
export class DeskChannel<Body extends ToEngineBody | ToApprovalClientBody, Context = null> {
  readonly key: Uint8Array
  readonly replies = new PendingReplies<unknown, Context>()
  readonly #init: DeskChannelInit<Body>
  readonly #lines: AsyncGenerator<Buffer, void, undefined>
  readonly #seal: Seal

  private constructor(init: DeskChannelInit<Body>, key: Uint8Array, lines: AsyncGenerator<Buffer, void, undefined>, seal: Seal) {
    this.#init = init
    this.key = key
    this.#lines = lines
    this.#seal = seal
  }

  /** Throws `daemon_unreachable` if no reply comes, `operator_proof_required` if the connection is closed after our proof, `malformed`. */
  static async open<B extends ToEngineBody | ToApprovalClientBody, C = null>(init: DeskChannelInit<B>): Promise<DeskChannel<B, C>> {
    const { socket, role, name, clock = systemClock } = init
    socket.on('error', () => undefined)
    const disconnected = new AppError('daemon_unreachable', 'the approval service does not answer')
    const late = clock.setTimeout(() => socket.destroy(disconnected), DESK_OPEN_MS)
    try {
      const key = await init.key()
      const lines = linesOf(socket as AsyncIterable<Buffer>, init.maxLine, () => broken('a line is too long'))
      const first = await lines.next()
      if (first.done === true) throw disconnected
      const hello = readHello(first.value)
      if (typeof hello === 'string') throw broken(hello)
      const seal = new Seal({ key, role, serverNonce: hello.nonce, side: 'client', now: () => clock.now() })
      const channel = new DeskChannel<B, C>(init, key, lines, seal)
      channel.send({ type: 'open', role, name })
      const second = await lines.next()
      if (second.done === true) throw new AppError('operator_proof_required', init.refused)
      const body = channel.#bodyOf(second.value)
      if (body.type === 'error') throw errorOf(body)
      if (body.type !== 'opened' || body.role !== role) throw broken('it did not open')
      return channel
    } catch (error) {
      socket.destroy()
      throw error instanceof AppError ? error : disconnected
    } finally {
      late.cancel()
    }
  }

  /** Bytes that the approval service has not read. */
  get unread(): number {
    return this.#init.socket.writableLength
  }

  send(body: object): void {
    this.#init.socket.write(this.#seal.line(body))
  }

  /** Gives every body except errors to `onBody`. Resolves with the reason when the connection ends. */
  async read(onBody: (body: Exclude<Body, { type: 'error' }>) => void): Promise<AppError> {
    try {
      for await (const line of this.#lines) {
        const body = this.#bodyOf(line)
        if (body.type !== 'error') onBody(body as Exclude<Body, { type: 'error' }>)
        else if (body.id === null) throw errorOf(body)
        else this.replies.reject(body.id, errorOf(body))
      }
      return this.close(this.#init.lost())
    } catch (error) {
      return this.close(error instanceof AppError ? error : this.#init.lost())
    }
  }

  /** Closes the connection. Returns the first reason to close it. */
  close(why: AppError): AppError {
    this.#init.socket.destroy()
    this.replies.close(why)
    return this.replies.closed ?? why
  }

  #bodyOf(line: Buffer): Body {
    const opened = this.#seal.open(line)
    if (opened.kind === 'refused')
      throw new AppError('malformed', `the server is not the approval service of this data directory, or was too slow: ${opened.problem}`)
    const body = this.#init.read(opened.body)
    if (typeof body === 'string') throw broken(body)
    return body
  }
}
