import type { Clock } from '../base/clock.ts'
import { AppError, asAppError, isAppError } from '../base/errors.ts'
import type { DetachedRequestCalls } from '../executor-api/client.ts'
import { sha256 } from '../identity/hash.ts'
import { type DetachedRunUpdate, type DetachedRequest, hasEnd, isOver } from '../protocol/api/detached-run.ts'
import { type RequestId, toHex } from '../protocol/ids.ts'
import { ASK_HOST_MS, MAX_ASKED_AT_ONCE } from '../protocol/limits/detached.ts'
import type { DetachedClient, StartedDetached } from './detached/detached-client.ts'
import type { DetachedRunEvents } from './detached/detached-events.ts'
import type {
  AttachOutcome,
  DetachedRunEvent,
  DetachedInfo,
  DetachedSink,
  DetachedSpec,
  DetachedTarget,
} from './detached/detached-types.ts'
import { CompletionWaits, isFullThere } from './detached/completion-waits.ts'
import { mayRun } from './detached/host-replies.ts'
import type { RunOutcome } from './run-spec.ts'

export const goesOn = ({ state }: { readonly state: DetachedRequest['state'] | null }): boolean =>
  state === 'running' || state === 'waiting'

/** Passes events on, and aborts `enough` when all output that was stored at the beginning has been shown. */
export class OutputProgress implements DetachedSink {
  readonly #sink: DetachedSink
  readonly #follow: boolean
  readonly #enough = new AbortController()
  readonly enough = this.#enough.signal
  #kept = 0
  next: number
  state: DetachedRequest['state'] | null = null

  constructor(components: { sink: DetachedSink }, init: { from: number; follow: boolean }) {
    this.#sink = components.sink
    this.#follow = init.follow
    this.next = init.from
  }

  async event(event: DetachedRunEvent): Promise<void> {
    await this.#sink.event(event)
    if (event.type === 'run_state') {
      this.state = event.info.state
      this.#kept = event.info.bytes_kept
    }
    if (event.type === 'stdout' || event.type === 'stderr') this.next = event.offset + event.data.length
    if (!this.#follow && goesOn(this) && this.next >= this.#kept) this.#enough.abort()
  }
}

interface DetachedRunsDeps {
  readonly engine: Pick<DetachedClient, 'start' | 'attach' | 'state' | 'cancel' | 'forget'>
  /** The executor's file of detached requests. */
  readonly asked: Pick<DetachedRequestCalls, 'add' | 'list' | 'get' | 'record' | 'forget'>
  readonly clock: Clock
  readonly events: Pick<DetachedRunEvents, 'denied' | 'heard'>
}

/** Stored state of a detached run, and the latest reply of its host. */
export interface DetachedRunStatus {
  readonly run: DetachedRequest
  /** Null if the host was not asked or did not answer. */
  readonly host: DetachedInfo | null
  /** Why the host did not answer, or null if it did or was not asked. */
  readonly problem: AppError | null
  /** The outcome, if the host just returned the signed Exit. */
  readonly outcome: RunOutcome | null
}

/** A run that has started, or its denial. */
export type Started = DetachedRunStatus | { readonly denied: RunOutcome }

/** Result of an attach that the client ended. The next one starts at the offset `next`. */
export interface AttachProgress extends Pick<AttachOutcome, 'from' | 'next' | 'outcome'> {
  readonly state: DetachedRequest['state']
}

/** Hash of the fields that a repeated Request for the same run must also have. */
const digestOf = ({ agent_id, argv, cwd, clamp, lifetime_ms, keep_bytes }: DetachedSpec): string =>
  toHex(sha256(Buffer.from(JSON.stringify([agent_id, argv, cwd, clamp, lifetime_ms, keep_bytes]))))

const targetOf = ({ agent_id, machine_id, request_id, requests }: DetachedRequest): DetachedTarget => ({
  agent_id,
  machine_id,
  request_id,
  request_sha256: requests,
})

const newsOf = ({ state }: DetachedInfo, outcome: RunOutcome | null): DetachedRunUpdate => ({
  state,
  code: outcome?.code ?? null,
  signal: outcome?.signal ?? null,
  denial_reason: outcome?.denial_reason ?? null,
})

interface ExitWanted {
  readonly signal: AbortSignal
  /** Whether to wait for an Exit that does not exist yet. */
  readonly toTheEnd: boolean
}

const silent: DetachedSink = { event: () => undefined }

/** The detached runs that this daemon requested. Each is in the executor's file before its Request is sent. The file is updated with every later reply of the host. */
export class DetachedRuns {
  readonly #deps: DetachedRunsDeps
  readonly #waits: CompletionWaits

  constructor(deps: DetachedRunsDeps) {
    this.#deps = deps
    this.#waits = new CompletionWaits(deps)
  }

  /**
   * Starts a run, or finds the one that this request ID started. Throws as `DetachedClient.start`. Throws `conflict`, `rate_limited` or
   * `bad_runs` if the run could not be saved. With `data.may_run` it may run, so repeat the call with the same ID.
   */
  async start(spec: DetachedSpec, session: string | null, signal: AbortSignal): Promise<Started> {
    const { argv, lifetime_ms, keep_bytes } = spec
    let added: RequestId | null = null
    let id = spec.request_id ?? null
    // A run without an ID has no events.
    const denied = (reason: string): void =>
      void (id !== null && this.#deps.events.denied({ request_id: id, agent_id: spec.agent_id, session }, reason))
    const onSigned = async ({ agent_id, machine_id, request_id, request_sha256 }: DetachedTarget): Promise<void> => {
      id = request_id
      const request = request_sha256.at(-1)!
      const about = { agent_id, machine_id, argv: [...argv], lifetime_ms, keep_bytes, session }
      if (await this.#deps.asked.add({ request_id, ...about, digest: digestOf(spec), request })) added = request_id
    }
    // Removes the row of a run that did not start. If that fails, the host later reports the run as unknown.
    const forgetNew = async (): Promise<unknown> => added !== null && this.#deps.asked.forget(added).catch(() => undefined)
    let answer: StartedDetached
    try {
      answer = await this.#deps.engine.start({ ...spec, known_sha256: await this.#requestsOf(spec.request_id) }, onSigned, signal)
    } catch (error) {
      if (isAppError(error) && error.data['may_run'] !== true && !signal.aborted) {
        await forgetNew()
        // In that case the ID belongs to another run.
        if (error.code !== 'conflict') denied(error.code)
      }
      throw error
    }
    if ('denied' in answer) {
      await forgetNew()
      denied(answer.denied.denial_reason ?? 'internal')
      return { denied: answer.denied }
    }
    try {
      return await this.#withEnd(await this.#heard(await this.#deps.asked.get(answer.target.request_id), answer.info), signal)
    } catch (error) {
      throw mayRun(error)
    }
  }

  /** Oldest first. Throws `bad_runs`. */
  async list(): Promise<DetachedRequest[]> {
    return this.#deps.asked.list()
  }

  /** Throws `unknown_run`, `bad_runs`. */
  async get(id: RequestId): Promise<DetachedRequest> {
    return this.#deps.asked.get(id)
  }

  /** Asks the hosts of all runs whose end is unknown, several at a time. A host that does not answer does not delay the others. */
  async refresh(runs: readonly DetachedRequest[], signal: AbortSignal): Promise<DetachedRunStatus[]> {
    const heard: DetachedRunStatus[] = runs.map((run) => ({ run, host: null, problem: null, outcome: null }))
    const asking = heard.entries()
    const askOn = async (): Promise<void> => {
      for (const [at, { run }] of asking) if (needsAsking(run)) heard[at] = await this.#askNow(run, signal)
    }
    await Promise.all(Array.from({ length: MAX_ASKED_AT_ONCE }, askOn))
    signal.throwIfAborted()
    return heard
  }

  /** Shows the output from this offset. With `follow` it continues to the end of the run. Otherwise it stops after all output that is stored now. Throws as `get` and `DetachedClient.attach`. */
  async attach(
    id: RequestId,
    { from, follow }: { from: number; follow: boolean },
    sink: DetachedSink,
    signal: AbortSignal,
  ): Promise<AttachProgress> {
    const run = await this.#deps.asked.get(id)
    const shown = new OutputProgress({ sink }, { from, follow })
    try {
      const { info, outcome, next } = await this.#deps.engine.attach(targetOf(run), from, shown, AbortSignal.any([signal, shown.enough]))
      await this.#record(run, info, outcome)
      return { from, next, outcome, state: info.state }
    } catch (error) {
      if (shown.enough.aborted && !signal.aborted) return { from, next: shown.next, outcome: null, state: shown.state ?? run.state }
      if (isAppError(error, 'unknown_run')) await this.#gone(id, error)
      throw error
    }
  }

  /** Waits for the end of the run. Throws as `attach`. */
  async wait(id: RequestId, signal: AbortSignal): Promise<DetachedRunStatus> {
    const run = await this.#deps.asked.get(id)
    const known: DetachedRunStatus = { run, host: null, problem: null, outcome: null }
    if (run.state === 'lost' || run.state === 'expired') return known
    try {
      return await this.#ask(run, { signal, toTheEnd: true })
    } catch (error) {
      // The stored end is sufficient if the Exit cannot be fetched.
      if (hasEnd(run) && isAppError(error) && !signal.aborted) return known
      throw error
    }
  }

  /** Requests the end of the run. `wait` reports when it has ended. Throws as `get` and `DetachedClient.cancel`. */
  async cancel(id: RequestId, signal: AbortSignal): Promise<DetachedRunStatus> {
    const run = await this.#deps.asked.get(id)
    return this.#withEnd(await this.#heard(run, await this.#deps.engine.cancel(targetOf(run), signal)), signal)
  }

  /** Makes the host delete the run's data, then deletes the row. `here` deletes only the row, for a host that cannot be reached. Throws as `get` and `DetachedClient.forget`, except if the host does not know the run. */
  async forget(id: RequestId, here: boolean, signal: AbortSignal): Promise<DetachedRequest> {
    const run = await this.#deps.asked.get(id)
    if (!here && run.state !== 'expired')
      await this.#deps.engine.forget(targetOf(run), signal).catch((error: unknown) => {
        if (!isAppError(error, 'unknown_run')) throw error
      })
    return this.#deps.asked.forget(id)
  }

  /** Hashes of the Requests that were signed under this ID before. */
  async #requestsOf(id: RequestId | undefined): Promise<readonly string[]> {
    if (id === undefined) return []
    try {
      return (await this.#deps.asked.get(id)).requests
    } catch (error) {
      if (isAppError(error, 'unknown_run')) return []
      throw error
    }
  }

  /** Adds the outcome to the status of a run that has ended, if its host can be asked now. */
  async #withEnd(heard: DetachedRunStatus, signal: AbortSignal): Promise<DetachedRunStatus> {
    if (heard.run.state !== 'ended' || !needsAsking(heard.run)) return heard
    const asked = await this.#askNow(heard.run, signal)
    return asked.problem === null ? asked : heard
  }

  async #askNow(run: DetachedRequest, left: AbortSignal): Promise<DetachedRunStatus> {
    const late = new AbortController()
    const timer = this.#deps.clock.setTimeout(() => late.abort(new AppError('timeout', `no answer within ${ASK_HOST_MS} ms`)), ASK_HOST_MS)
    const signal = AbortSignal.any([left, late.signal])
    try {
      return await this.#ask(run, { signal, toTheEnd: false })
    } catch (error) {
      left.throwIfAborted()
      return { run, host: null, problem: asAppError(error), outcome: null }
    } finally {
      timer.cancel()
    }
  }

  /** Asks the host for the state. To wait for the end it attaches. If all slots for that are taken, it asks again later. */
  async #ask(run: DetachedRequest, exit: ExitWanted): Promise<DetachedRunStatus> {
    for (;;) {
      let leave: (() => void) | null = null
      try {
        const host = await this.#deps.engine.state(targetOf(run), exit.signal)
        const stays = exit.toTheEnd && goesOn(host)
        leave = stays ? this.#waits.enter(run.machine_id) : null
        const heard = await this.#heard(run, host, stays && leave === null ? null : exit)
        if (!stays || leave !== null) return heard
      } catch (error) {
        // A rate limit, of this daemon or of the host, only delays a wait.
        if (!isFullThere(error) && !(exit.toTheEnd && isAppError(error, 'rate_limited'))) throw error
      } finally {
        leave?.()
      }
      await this.#waits.pause(run.machine_id, exit.signal)
    }
  }

  /** Records that the host has deleted the run. */
  async #gone(id: RequestId, { data }: AppError): Promise<void> {
    if (data['state'] === 'expired') await this.#deps.asked.record(id, { state: 'expired', code: null, signal: null, denial_reason: null })
  }

  /** Records the reply of the host. If the row was deleted meanwhile, it still returns the new state. */
  async #record(before: DetachedRequest, host: DetachedInfo, outcome: RunOutcome | null): Promise<DetachedRequest> {
    const news = newsOf(host, outcome)
    const run = await this.#deps.asked.record(before.request_id, news).catch((error: unknown) => {
      if (isAppError(error, 'unknown_run')) return hasEnd(before) ? before : { ...before, ...news }
      throw error
    })
    this.#deps.events.heard(run, outcome)
    return run
  }

  /** Records the reply of the host. `exit` also fetches the signed Exit by attaching, and with `toTheEnd` waits for it. */
  async #heard(before: DetachedRequest, host: DetachedInfo, exit: ExitWanted | null = null): Promise<DetachedRunStatus> {
    const run = await this.#record(before, host, null)
    const isWanted = exit !== null && (exit.toTheEnd ? goesOn(host) || host.state === 'ended' : host.state === 'ended' && !hasEnd(run))
    if (!isWanted) return { run, host, problem: null, outcome: null }
    const attach = async (): Promise<AttachOutcome> => this.#deps.engine.attach(targetOf(run), host.bytes_kept, silent, exit.signal)
    const { info, outcome } = await (goesOn(host) ? attach() : this.#waits.fetch(run.machine_id, exit.signal, attach))
    return { run: await this.#record(run, info, outcome), host: info, problem: null, outcome }
  }
}

/** Whether the host may know more than the row. */
const needsAsking = (run: DetachedRequest): boolean => !isOver(run.state) || (run.state === 'ended' && !hasEnd(run))
