import { BoundedSet } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { AppError, isAppError } from '../base/errors.ts'
import type { RunSession } from '../protocol/api-answers.ts'
import type { LifecycleFacts } from '../protocol/events/lifecycle.ts'
import type { RunReporter } from '../protocol/events/run-reporter.ts'
import { isFileCommand } from '../protocol/file-command.ts'
import type { MachineId, RequestId } from '../protocol/ids.ts'
import { MAX_RECENT_RUNS } from '../protocol/limits/wire.ts'
import type { RunSpec } from './run-spec.ts'

/** Limit of concurrent runs requested by one daemon. A client that reaches it is probably in a loop. */
const MAX_LOCAL_RUNS = 1_024

/** Error of a run that was cancelled before its Request was sent. */
const cancelledUnsent = (): AppError =>
  new AppError('conflict', 'the run was cancelled before it was sent', { data: { cancelled_unsent: true } })

/** Whether the run was cancelled before its Request was sent. */
export const isCancelledUnsent = (error: unknown): boolean => isAppError(error) && error.data['cancelled_unsent'] === true

/** The error for a local client while this daemon drains. */
export const drainingHere = (): AppError =>
  new AppError('draining', 'x0xd on this machine is draining (draining): it restarts and accepts no new command until then. Nothing ran', {
    data: { next: 'Try: the same command in a moment' },
  })

/** Whether another run has, or had, this request ID. The command may then have run under it. */
export const isIdUsed = (error: unknown): boolean => isAppError(error) && error.data['id_used'] === true

/** One requested run, from `ExecClient.run` until its outcome, as `x0x exec sessions` shows it. */
export class OutgoingRunEntry {
  readonly requestId: RequestId
  readonly #cancel = new AbortController()
  /** Aborts when the run is cancelled. */
  readonly cancelled = this.#cancel.signal
  readonly #clock: Clock
  readonly #onClose: () => void
  /** Reporter of the run's events and output, or null until it exists. */
  reporter: Pick<RunReporter, 'soFar'> | null = null
  /** See `ResumableTransport.move`. Has no effect until there is a transport. */
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

  requested(machineId: MachineId): void {
    this.#info = { ...this.#info, machine_id: machineId, state: 'requested' }
  }

  /** Records that the target denied the Request for now, so that the same ID is asked again. */
  deniedForNow(): void {
    if (this.#info.state !== 'cancelling') this.#info = { ...this.#info, machine_id: null, state: 'connecting' }
  }

  /** Records that the Request certainly did not arrive. */
  neverArrived(): void {
    this.#info = { ...this.#info, machine_id: null }
  }

  /** Records that the run waits for an approval. */
  waiting(expiresInMs: number): void {
    if (this.#info.state !== 'requested' && this.#info.state !== 'waiting_for_approval') return
    const approval_expires_at = new Date(this.#clock.now() + expiresInMs).toISOString()
    this.#info = { ...this.#info, state: 'waiting_for_approval', approval_expires_at }
  }

  /** Records that the process has started. */
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

/** The runs that this daemon requested and that have not ended. */
export class OutgoingRuns {
  readonly #clock: Clock
  readonly #sessions = new Map<RequestId, OutgoingRunEntry>()
  /** Number of those that belong to fan-outs, which have their own limit. */
  #inFanouts = 0
  /** IDs of ended runs. The target would deny one as a replay. `conflict` is a clearer error. */
  readonly #used = new BoundedSet<RequestId>({ max: MAX_RECENT_RUNS })
  #stopped: PromiseWithResolvers<void> | null = null

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock
  }

  /** While true, new runs are refused, but not those of fan-outs and copies, which began before. */
  isDraining = false

  /** Throws `shutting_down`, `draining`, or `rate_limited` if there are too many. */
  checkRoom(): void {
    this.#checkGoing()
    if (this.isDraining) throw drainingHere()
    this.#checkCount()
  }

  #checkCount(): void {
    if (this.#sessions.size - this.#inFanouts >= MAX_LOCAL_RUNS)
      throw new AppError('rate_limited', `${MAX_LOCAL_RUNS} runs are running, which is the limit`)
  }

  #checkGoing(): void {
    if (this.#stopped !== null) throw new AppError('shutting_down')
  }

  /** Throws `conflict` if the ID is or was in use, and as `checkRoom`. */
  open(requestId: RequestId, spec: RunSpec): OutgoingRunEntry {
    this.#checkGoing()
    if (spec.fanout === undefined && isFileCommand(spec.argv)) this.#checkCount()
    else if (spec.fanout === undefined) this.checkRoom()
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

  /** Moves the runs on this machine to its new direct connection. */
  move(machineId: MachineId): void {
    for (const session of this.#sessions.values()) if (session.info.machine_id === machineId) session.move()
  }

  list(): RunSession[] {
    return [...this.#sessions.values()].map((session) => session.info)
  }

  /** Returns the last bytes of the run's output so far. Throws `unknown_run`. */
  output(requestId: RequestId): Pick<LifecycleFacts, 'tail' | 'tail_truncated'> {
    return this.#session(requestId).reporter?.soFar(true) ?? {}
  }

  #session(requestId: RequestId): OutgoingRunEntry {
    const session = this.#sessions.get(requestId)
    if (session === undefined)
      throw new AppError('unknown_run', 'no run of this daemon has that id, or it has ended', {
        data: { next: 'See: x0x exec sessions\nSee: x0x exec sessions --incoming   (runs of other agents)' },
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
    // A run that was never sent, or never arrived, may be repeated with the same ID.
    if (machine_id !== null) this.#used.add(request_id)
    if (this.#sessions.size === 0) this.#stopped?.resolve()
  }
}

const inUse = (state: string): AppError =>
  new AppError('conflict', `request_id: the run with this ID ${state}; each run needs a new ID`, { data: { id_used: true } })
