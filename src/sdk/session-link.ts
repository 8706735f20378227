import type { Params } from '../protocol/rexd/methods.ts'
import type { RexdEvent } from '../protocol/rexd/results.ts'
import type { CallScope } from './calls.ts'
import { type RexdDisconnected, RexdGap, RexdProtocolError } from './errors.ts'

/** Receives the events of a process. */
export interface ProcessListener {
  onEvent(event: RexdEvent): void
  /** Some events are lost. Later ones are still reported. */
  onGap(error: RexdGap): void
  /** No further events will come. */
  onLost(error: Error): void
}

/** Tracks the transport of a session, which may be between two transports or ended, and the last event that was received. */
export class SessionLink implements CallScope {
  readonly id: string
  readonly #token: string | null
  readonly #listeners = new Map<string, ProcessListener>()
  #transport: object | null
  #cursor = 0
  #loss: RexdDisconnected | null = null

  /** `token` resumes it over another transport. Null means that it ends with this one. */
  constructor(init: { id: string; token: string | null; transport: object }) {
    this.id = init.id
    this.#token = init.token
    this.#transport = init.transport
  }

  get transport(): object | null {
    return this.#transport
  }

  get lasting(): boolean {
    return this.#token !== null && this.#loss === null
  }

  /** Whether it waits for a transport. */
  get away(): boolean {
    return this.#transport === null && this.lasting
  }

  /** Why no call is possible, or null if one is or will be. */
  get loss(): RexdDisconnected | null {
    return this.#loss
  }

  get resumption(): Params<'session.resume'> {
    if (this.#token === null) throw new RexdProtocolError('the session ends with its connection')
    return { session_id: this.id, resume_token: this.#token, cursor: this.#cursor }
  }

  add(processId: string, listener: ProcessListener): void {
    if (this.#listeners.has(processId)) throw new RexdProtocolError(`the server gave ${processId} to two processes`)
    this.#listeners.set(processId, listener)
  }

  remove(processId: string, listener: ProcessListener): void {
    if (this.#listeners.get(processId) === listener) this.#listeners.delete(processId)
  }

  /** False if the event has no listener here. */
  hear(event: RexdEvent): boolean {
    if (event.method === 'session.gap') {
      this.#miss(event.params.from, event.params.to)
      return false
    }
    const { cursor } = event.params
    if (cursor !== undefined && this.#token !== null) {
      // The event also came over the previous transport.
      if (cursor <= this.#cursor) return true
      if (cursor > this.#cursor + 1) this.#miss(this.#cursor + 1, cursor - 1)
      this.#cursor = cursor
    }
    // The process has no ID yet, so its caller handles the event.
    if (event.method === 'exec.waiting') return false
    const listener = this.#listeners.get(event.params.process_id)
    listener?.onEvent(event)
    return listener !== undefined
  }

  /** The transport is lost. */
  leave(error: RexdDisconnected): void {
    if (this.lasting) this.#transport = null
    else this.end(error)
  }

  /** The session was resumed over this transport. */
  arrive(transport: object): void {
    this.#transport = transport
  }

  /** The session has ended, with all of its processes. */
  end(error: RexdDisconnected): void {
    this.#loss ??= error
    this.#transport = null
    const listeners = [...this.#listeners.values()]
    this.#listeners.clear()
    for (const listener of listeners) listener.onLost(error)
  }

  #miss(from: number, to: number): void {
    this.#cursor = Math.max(this.#cursor, to)
    const error = new RexdGap(from, to)
    for (const listener of this.#listeners.values()) listener.onGap(error)
  }
}
