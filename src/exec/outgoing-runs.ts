import { BoundedSet } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { AppError, isAppError } from '../base/errors.ts'
import type { RunSession } from '../protocol/api-answers.ts'
import type { LifecycleFacts } from '../protocol/events/lifecycle.ts'
import type { RunReporter } from '../protocol/events/run-reporter.ts'
import type { MachineId, RequestId } from '../protocol/ids.ts'
import { MAX_RECENT_RUNS } from '../protocol/limits/wire.ts'
import type { RunSpec } from './run-spec.ts'

/** Runs that one daemon asks for at the same time; more is a loop gone wrong. */
const MAX_LOCAL_RUNS = 1_024

/** Why a run threw that was cancelled before its Request left us: its `data` says so. */
const cancelledUnsent = (): AppError =>
  new AppError('conflict', 'the run was cancelled before it was sent', { data: { cancelled_unsent: true } })

/** Whether somebody cancelled the run that threw this, before its Request left us. */
export const isCancelledUnsent = (error: unknown): boolean => isAppError(error) && error.data['cancelled_unsent'] === true

/** Whether this was thrown because another run has the id, or had it: under it the command may run. */
export const isIdUsed = (error: unknown): boolean => isAppError(error) && error.data['id_used'] === true

/** One run of ours from `ExecClient.run` until its outcome: what `x0x exec sessions` shows of it, and its `cancelled` signal. */
export class OutgoingRunEntry {
  readonly requestId: RequestId
  readonly #cancel = new AbortController()
  /** Aborts when the run shall end. */
  readonly cancelled = this.#cancel.signal
  readonly #clock: Clock
  readonly #onClose: () => void
  /** What it has written so far; null: its run has no story yet. */
  story: Pick<RunReporter, 'soFar'> | null = null
  /** See `ResumableTransport`; nothing before there is a transport. */
  move: () => void = () => undefined
  #info: RunSession

  constructor(components: { clock: Clock }, init: { info: RunSession; onClose: () => void }) {
    this.#clock = components.clock
    this.#info = init.info
    this.requestId = init.info.request_id
    this.#onClose = init.onClose
  }

  get info(): RunSession {
    return this.#info
  }

  /** The Request was sent. */
  requested(machineId: MachineId): void {
    this.#info = { ...this.#info, machine_id: machineId, state: 'requested' }
  }

  /** The Request that was sent certainly did not arrive. */
  neverArrived(): void {
    this.#info = { ...this.#info, machine_id: null }
  }

  /** Somebody must allow it. */
  waiting(expiresInMs: number): void {
    if (this.#info.state !== 'requested' && this.#info.state !== 'waiting_for_approval') return
    const approval_expires_at = new Date(this.#clock.now() + expiresInMs).toISOString()
    this.#info = { ...this.#info, state: 'waiting_for_approval', approval_expires_at }
  }

  /** The process runs. */
  running(): void {
    const { approval_expires_at: _, ...info } = this.#info
    if (info.state === 'requested' || info.state === 'waiting_for_approval') this.#info = { ...info, state: 'running' }
  }

  cancel(reason: AppError): void {
    this.#cancel.abort(reason)
    this.#info = { ...this.#info, state: 'cancelling' }
  }

  close(): void {
    this.#onClose()
  }
}

/** The runs that this daemon asked for and that have not ended. */
export class OutgoingRuns {
  readonly #clock: Clock
  readonly #sessions = new Map<RequestId, OutgoingRunEntry>()
  /** Of those, parts of fan-outs, which have a limit of their own. */
  #inFanouts = 0
  /** Ids of runs that have ended. The other side would deny one of these as a replay, which says less than our `conflict`. */
  readonly #used = new BoundedSet<RequestId>({ max: MAX_RECENT_RUNS })
  #stopped: PromiseWithResolvers<void> | null = null

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  /** Throws `shutting_down`, or `rate_limited` when there are too many. */
  checkRoom(): void {
    this.#checkGoing()
    if (this.#sessions.size - this.#inFanouts >= MAX_LOCAL_RUNS)
      throw new AppError('rate_limited', `${MAX_LOCAL_RUNS} runs are waiting for their end`)
  }

  #checkGoing(): void {
    if (this.#stopped !== null) throw new AppError('shutting_down')
  }

  /** Throws `conflict` when the id is or was in use, `rate_limited` when there are too many, `shutting_down`. */
  open(requestId: RequestId, spec: RunSpec): OutgoingRunEntry {
    if (spec.fanout === undefined) this.checkRoom()
    else this.#checkGoing()
    if (this.#sessions.has(requestId)) throw inUse('has not ended')
    if (this.#used.has(requestId)) throw inUse('has ended')
    const info: RunSession = {
      request_id: requestId,
      agent_id: spec.agent_id,
      machine_id: null,
      argv: [...spec.argv],
      started_at: new Date(this.#clock.now()).toISOString(),
      state: 'connecting',
      ...(spec.fanout !== undefined && { fanout_id: spec.fanout.id, host: spec.fanout.host }),
    }
    if (spec.fanout !== undefined) this.#inFanouts += 1
    const session: OutgoingRunEntry = new OutgoingRunEntry({ clock: this.#clock }, { info, onClose: () => this.#close(session) })
    this.#sessions.set(requestId, session)
    return session
  }

  /** Those on this machine go on over the better way that there is to it. */
  move(machineId: MachineId): void {
    for (const session of this.#sessions.values()) if (session.info.machine_id === machineId) session.move()
  }

  list(): RunSession[] {
    return [...this.#sessions.values()].map((session) => session.info)
  }

  /** The end of what it has written so far. Throws `unknown_run`. */
  output(requestId: RequestId): Pick<LifecycleFacts, 'tail' | 'tail_truncated'> {
    return this.#session(requestId).story?.soFar(true) ?? {}
  }

  #session(requestId: RequestId): OutgoingRunEntry {
    const session = this.#sessions.get(requestId)
    if (session === undefined)
      throw new AppError('unknown_run', 'no run of this daemon has that id, or it has ended', {
        data: { next: 'what goes on: x0x exec sessions; what runs here for others: x0x exec sessions --incoming' },
      })
    return session
  }

  /** Throws `unknown_run`. */
  cancel(requestId: RequestId): void {
    this.#session(requestId).cancel(cancelledUnsent())
  }

  async stop(): Promise<void> {
    this.#stopped ??= Promise.withResolvers<void>()
    for (const session of this.#sessions.values()) session.cancel(new AppError('shutting_down'))
    if (this.#sessions.size === 0) this.#stopped.resolve()
    await this.#stopped.promise
  }

  #close({ info: { request_id, machine_id, fanout_id } }: OutgoingRunEntry): void {
    this.#sessions.delete(request_id)
    if (fanout_id !== undefined) this.#inFanouts -= 1
    // One that was never sent, or never arrived, may be tried again.
    if (machine_id !== null) this.#used.add(request_id)
    if (this.#sessions.size === 0) this.#stopped?.resolve()
  }
}

const inUse = (state: string): AppError =>
  new AppError('conflict', `request_id: the run with this id ${state}; each run needs an id of its own`, { data: { id_used: true } })
