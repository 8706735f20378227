import type { Socket } from 'node:net'
import type { Clock, Timer } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import { TokenBucket } from '../base/token-bucket.ts'
import { DESK_LINES, DESK_OPEN_MS, MAX_DESK_EVENTS_UNREAD, MAX_DESK_LINE, MAX_DESK_UNREAD } from '../protocol/desk-limits.ts'
import { DESK_ROLES, DESK_VERSION, type DeskRole, readEngineBody, readHumanBody } from '../protocol/desk.ts'
import { LineSplitter, jsonText } from '../protocol/lines.ts'
import type { DeskSession } from './engine-session.ts'
import { Seal, newHelloNonce } from './seal.ts'
import { isEvent, isOutput } from './watchers.ts'

const HANG_UP_MS = 1_000

/** What a connection needs of its server. */
export interface DeskHost {
  /** The key of each role; a role without one lets nobody in. */
  keys(): Promise<Readonly<Record<DeskRole, Uint8Array | null>>>
  /** Null: as many of this role are connected as may be. */
  session(role: DeskRole, name: string, send: (body: object) => void): DeskSession | null
  /** A line was not taken, and the connection is closed. */
  refused(code: 'unauthorized' | 'malformed' | 'rate_limited', role: DeskRole | null, name: string | null, problem: string): void
}

/** One client of the desk, from `hello` to its end. Whatever is wrong with a line ends the connection. */
export class DeskConnection {
  readonly #host: DeskHost
  readonly #clock: Clock
  readonly #socket: Socket
  readonly #nonce = newHelloNonce()
  readonly #lines = new LineSplitter({ max: MAX_DESK_LINE })
  readonly #rate: TokenBucket
  readonly #late: Timer
  #keys: Readonly<Record<DeskRole, Uint8Array | null>> | null = null
  #seal: Seal | null = null
  #session: DeskSession | null = null
  #role: DeskRole | null = null
  #name: string | null = null
  #isOver = false
  readonly #onClose: () => void

  constructor(components: { host: DeskHost; clock: Clock }, init: { socket: Socket; onClose: () => void }) {
    this.#host = components.host
    this.#clock = components.clock
    this.#socket = init.socket
    this.#onClose = init.onClose
    this.#rate = new TokenBucket(components, DESK_LINES)
    this.#late = this.#clock.setTimeout(() => this.#refuse('unauthorized', 'it proved no role in time'), DESK_OPEN_MS, { unref: true })
    this.#socket.on('error', () => this.#socket.destroy())
    this.#socket.on('close', () => this.#closed())
    this.#socket.on('end', () => this.#socket.destroy())
    void this.#begin()
  }

  get role(): DeskRole | null {
    return this.#role
  }

  /** What was said goes out within a second, or is lost. */
  close(): void {
    this.#socket.destroySoon()
    const timer = this.#clock.setTimeout(() => this.#socket.destroy(), HANG_UP_MS)
    this.#socket.once('close', () => timer.cancel())
  }

  async #begin(): Promise<void> {
    this.#keys = await this.#host.keys()
    if (this.#isOver) return
    this.#socket.on('data', (chunk: Buffer) => this.#take(chunk))
    this.#write(`${jsonText({ type: 'hello', version: DESK_VERSION, nonce: this.#nonce })}\n`)
  }

  #closed(): void {
    this.#isOver = true
    this.#late.cancel()
    this.#session?.end()
    this.#onClose()
  }

  #take(chunk: Buffer): void {
    try {
      for (const line of this.#lines.pushStrictly(chunk, () => new AppError('malformed', `a line of more than ${MAX_DESK_LINE} bytes`))) {
        if (this.#isOver) return
        this.#line(line)
      }
    } catch (error) {
      this.#refuse('malformed', errorText(error))
    }
  }

  #line(line: Buffer): void {
    if (!this.#rate.take()) return this.#refuse('rate_limited', 'too many lines')
    if (this.#seal === null) return this.#open(line)
    const unsealed = this.#seal.open(line)
    if (unsealed.kind === 'refused') return this.#refuse('unauthorized', unsealed.problem)
    const problem = this.#session?.take(unsealed.body) ?? null
    if (problem !== null) this.#refuse('malformed', problem)
  }

  /** The first line: the role is the one whose key its MAC was made with. */
  #open(line: Buffer): void {
    let why = 'no role has a key now'
    for (const role of DESK_ROLES) {
      const key = this.#keys?.[role] ?? null
      if (key === null) continue
      const seal = new Seal({ key, role, serverNonce: this.#nonce, side: 'desk', now: () => this.#clock.now() })
      const unsealed = seal.open(line)
      if (unsealed.kind === 'body') return this.#opened(role, seal, unsealed.body)
      why = unsealed.problem
    }
    this.#refuse('unauthorized', why)
  }

  #opened(role: DeskRole, seal: Seal, bytes: Uint8Array): void {
    const body = role === 'engine' ? readEngineBody(bytes) : readHumanBody(bytes)
    if (typeof body === 'string') return this.#refuse('malformed', body)
    if (body.type !== 'open') return this.#refuse('malformed', 'the first body must open')
    if (body.role !== role) return this.#refuse('unauthorized', 'its key is of the other role')
    this.#seal = seal
    this.#name = body.name
    const session = this.#host.session(role, body.name, (answer) => this.#send(answer))
    if (session === null) {
      this.#send({ type: 'error', id: null, code: 'rate_limited', message: `as many are connected as may be: close one of them` })
      return this.close()
    }
    this.#role = role
    this.#session = session
    this.#late.cancel()
    this.#send({ type: 'opened', role })
  }

  #send(body: object): void {
    // Who reads slowly misses output that is told again, and what became of runs, which the journal has; and loses no question for it.
    const unread = this.#socket.writableLength
    if (isOutput(body) ? unread > 0 : isEvent(body) && unread > MAX_DESK_EVENTS_UNREAD) return
    if (this.#seal !== null) this.#write(this.#seal.line(body))
  }

  #write(line: string): void {
    if (this.#isOver || !this.#socket.writable) return
    this.#socket.write(line)
    // Nobody reads: it would take our memory.
    if (this.#socket.writableLength > MAX_DESK_UNREAD) this.#refuse('rate_limited', 'it does not read what it is told')
  }

  #refuse(code: 'unauthorized' | 'malformed' | 'rate_limited', problem: string): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#host.refused(code, this.#role, this.#name, problem)
    this.#socket.destroy()
  }
}
