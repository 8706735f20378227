import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { MachineId, RequestId } from '../protocol/ids.ts'
import { MAX_LOCAL_RUNS } from '../protocol/limits.ts'
import type { RunProgress } from './client.ts'
import type { RunSession, RunSpec } from './run-spec.ts'

/** One run of ours, from the moment it is asked for until its outcome is known. */
export class Session implements RunProgress {
  readonly #controller = new AbortController()
  readonly #onClose: () => void
  #info: RunSession

  constructor(init: { info: RunSession; onClose: () => void }) {
    this.#info = init.info
    this.#onClose = init.onClose
  }

  get info(): RunSession {
    return this.#info
  }

  /** Aborts when the run shall end. */
  get cancelled(): AbortSignal {
    return this.#controller.signal
  }

  requested(machineId: MachineId): void {
    this.#info = { ...this.#info, machine_id: machineId, state: 'requested' }
  }

  running(): void {
    if (this.#info.state === 'requested') this.#info = { ...this.#info, state: 'running' }
  }

  cancel(reason: AppError): void {
    // Signal first, tell second.
    this.#controller.abort(reason)
    this.#info = { ...this.#info, state: 'cancelling' }
  }

  close(): void {
    this.#onClose()
  }
}

/** The runs that this daemon asked for and that have not ended. */
export class Sessions {
  readonly #clock: Clock
  readonly #sessions = new Map<RequestId, Session>()
  #stopped: PromiseWithResolvers<void> | null = null

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  /** Throws `conflict` when the id is in use, `rate_limited` when there are too many, `shutting_down`. */
  open(requestId: RequestId, spec: RunSpec): Session {
    if (this.#stopped !== null) throw new AppError('shutting_down')
    if (this.#sessions.has(requestId)) throw new AppError('conflict', 'a run with this request id has not ended')
    if (this.#sessions.size >= MAX_LOCAL_RUNS) throw new AppError('rate_limited', `${MAX_LOCAL_RUNS} runs are waiting for their end`)
    const info: RunSession = {
      request_id: requestId,
      agent_id: spec.agent_id,
      machine_id: null,
      argv: [...spec.argv],
      started_at: new Date(this.#clock.now()).toISOString(),
      state: 'connecting',
    }
    const session = new Session({ info, onClose: () => this.#close(requestId) })
    this.#sessions.set(requestId, session)
    return session
  }

  list(): RunSession[] {
    return [...this.#sessions.values()].map((session) => session.info)
  }

  /** Throws `unknown_run`. */
  cancel(requestId: RequestId): void {
    const session = this.#sessions.get(requestId)
    if (session === undefined) throw new AppError('unknown_run', 'no run of this daemon has that id, or it has ended')
    session.cancel(new AppError('conflict', 'the run was cancelled before it was sent'))
  }

  async stop(): Promise<void> {
    this.#stopped ??= Promise.withResolvers<void>()
    for (const session of this.#sessions.values()) session.cancel(new AppError('shutting_down'))
    if (this.#sessions.size === 0) this.#stopped.resolve()
    await this.#stopped.promise
  }

  #close(requestId: RequestId): void {
    this.#sessions.delete(requestId)
    if (this.#sessions.size === 0) this.#stopped?.resolve()
  }
}
