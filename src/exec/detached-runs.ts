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

/** Passes events on, and knows when all that was kept at the beginning has been shown. */
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

export interface DetachedRunsComponents {
  readonly engine: Pick<DetachedClient, 'start' | 'attach' | 'state' | 'cancel' | 'forget'>
  /** The file of what was asked for. */
  readonly asked: Pick<DetachedRequestCalls, 'add' | 'list' | 'get' | 'record' | 'forget'>
  readonly clock: Clock
  readonly stories: Pick<DetachedRunEvents, 'denied' | 'heard'>
}

/** What is known of a run, and what its host said just now. */
export interface DetachedRunStatus {
  readonly run: DetachedRequest
  /** Null: it was not asked, or did not answer. */
  readonly host: DetachedInfo | null
  /** Why it did not answer; null: it did, or was not asked. */
  readonly problem: AppError | null
  /** How it ended, where its host has just shown the signed Exit. */
  readonly outcome: RunOutcome | null
}

/** What has started, or what was denied. */
export type Started = DetachedRunStatus | { readonly denied: RunOutcome }

/** A run that its caller has stopped looking at: `next` is where to go on. */
export interface AttachProgress extends Pick<AttachOutcome, 'from' | 'next' | 'outcome'> {
  readonly state: DetachedRequest['state']
}

/** Of all that another Request for the same run repeats. */
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
  /** Also where it is still to come. */
  readonly toTheEnd: boolean
}

const silent: DetachedSink = { event: () => undefined }

/**
 * The detached runs that this daemon asked for: each is in the executor's file before its Request leaves, and what is heard
 * of it from then on is written down there.
 */
export class DetachedRuns {
  readonly #engine: DetachedRunsComponents['engine']
  readonly #asked: DetachedRunsComponents['asked']
  readonly #clock: Clock
  readonly #stories: DetachedRunsComponents['stories']
  readonly #waits: CompletionWaits

  constructor({ engine, asked, clock, stories }: DetachedRunsComponents) {
    this.#stories = stories
    this.#waits = new CompletionWaits({ clock })
    this.#engine = engine
    this.#asked = asked
    this.#clock = clock
  }

  /**
   * Starts one, or finds the one that was started by this id. Throws as `DetachedClient.start`, and `conflict`, `rate_limited`
   * or `bad_runs` where it could not be remembered. With `data.may_run` it may run: the same id asks again.
   */
  async start(spec: DetachedSpec, session: string | null, signal: AbortSignal): Promise<Started> {
    const { argv, lifetime_ms, keep_bytes } = spec
    let added: RequestId | null = null
    let id = spec.request_id ?? null
    // Nobody has heard of a run without an id.
    const denied = (reason: string): void =>
      void (id !== null && this.#stories.denied({ request_id: id, agent_id: spec.agent_id, session }, reason))
    const onSigned = async ({ agent_id, machine_id, request_id, request_sha256 }: DetachedTarget): Promise<void> => {
      id = request_id
      const request = request_sha256.at(-1)!
      const about = { agent_id, machine_id, argv: [...argv], lifetime_ms, keep_bytes, session }
      if (await this.#asked.add({ request_id, ...about, digest: digestOf(spec), request })) added = request_id
    }
    // Nothing runs, and nothing is to be found again. A row that cannot be removed is one that its host knows nothing of.
    const forgetNew = async (): Promise<unknown> => added !== null && this.#asked.forget(added).catch(() => undefined)
    let answer: StartedDetached
    try {
      answer = await this.#engine.start({ ...spec, known_sha256: await this.#requestsOf(spec.request_id) }, onSigned, signal)
    } catch (error) {
      if (isAppError(error) && error.data['may_run'] !== true && !signal.aborted) {
        await forgetNew()
        // Another run has that id.
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
      return await this.#withEnd(await this.#heard(await this.#asked.get(answer.target.request_id), answer.info), signal)
    } catch (error) {
      throw mayRun(error)
    }
  }

  /** The oldest first. Throws `bad_runs`. */
  async list(): Promise<DetachedRequest[]> {
    return this.#asked.list()
  }

  /** Throws `unknown_run`, `bad_runs`. */
  async get(id: RequestId): Promise<DetachedRequest> {
    return this.#asked.get(id)
  }

  /** Asks the host of each whose end is not known, some at a time. One that does not answer keeps the others from nothing. */
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

  /**
   * Shows what it has written from this byte on, and goes on with what it writes until it is over. Without `follow`: until all
   * that is kept now was shown. Throws as `get` and `DetachedClient.attach`.
   */
  async attach(
    id: RequestId,
    { from, follow }: { from: number; follow: boolean },
    sink: DetachedSink,
    signal: AbortSignal,
  ): Promise<AttachProgress> {
    const run = await this.#asked.get(id)
    const shown = new OutputProgress({ sink }, { from, follow })
    try {
      const { info, outcome, next } = await this.#engine.attach(targetOf(run), from, shown, AbortSignal.any([signal, shown.enough]))
      await this.#record(run, info, outcome)
      return { from, next, outcome, state: info.state }
    } catch (error) {
      if (shown.enough.aborted && !signal.aborted) return { from, next: shown.next, outcome: null, state: shown.state ?? run.state }
      if (isAppError(error, 'unknown_run')) await this.#gone(id, error)
      throw error
    }
  }

  /** Until it is over. Throws as `attach`. */
  async wait(id: RequestId, signal: AbortSignal): Promise<DetachedRunStatus> {
    const run = await this.#asked.get(id)
    const known: DetachedRunStatus = { run, host: null, problem: null, outcome: null }
    if (run.state === 'lost' || run.state === 'expired') return known
    try {
      return await this.#ask(run, { signal, toTheEnd: true })
    } catch (error) {
      // Its Exit says more than what is remembered of it, and that is enough.
      if (hasEnd(run) && isAppError(error) && !signal.aborted) return known
      throw error
    }
  }

  /** Asks it to end; whether it has, `wait` tells. Throws as `get` and `DetachedClient.cancel`. */
  async cancel(id: RequestId, signal: AbortSignal): Promise<DetachedRunStatus> {
    const run = await this.#asked.get(id)
    return this.#withEnd(await this.#heard(run, await this.#engine.cancel(targetOf(run), signal)), signal)
  }

  /**
   * Has its host let go of what it keeps, then forgets it here. `here`: here alone, where the host cannot be asked. Throws as
   * `get`, and as `DetachedClient.forget`, but for a host that knows nothing of it.
   */
  async forget(id: RequestId, here: boolean, signal: AbortSignal): Promise<DetachedRequest> {
    const run = await this.#asked.get(id)
    if (!here && run.state !== 'expired')
      await this.#engine.forget(targetOf(run), signal).catch((error: unknown) => {
        if (!isAppError(error, 'unknown_run')) throw error
      })
    return this.#asked.forget(id)
  }

  /** Those that were signed under this id before. */
  async #requestsOf(id: RequestId | undefined): Promise<readonly string[]> {
    if (id === undefined) return []
    try {
      return (await this.#asked.get(id)).requests
    } catch (error) {
      if (isAppError(error, 'unknown_run')) return []
      throw error
    }
  }

  /** Of one that was over when it was asked for something else: how it ended, where its host says so now. */
  async #withEnd(heard: DetachedRunStatus, signal: AbortSignal): Promise<DetachedRunStatus> {
    if (heard.run.state !== 'ended' || !needsAsking(heard.run)) return heard
    const asked = await this.#askNow(heard.run, signal)
    return asked.problem === null ? asked : heard
  }

  async #askNow(run: DetachedRequest, left: AbortSignal): Promise<DetachedRunStatus> {
    const late = new AbortController()
    const timer = this.#clock.setTimeout(() => late.abort(new AppError('timeout', `no answer within ${ASK_HOST_MS} ms`)), ASK_HOST_MS)
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

  /** How it is there; and again after a while where it goes on, and no more may be attached to wait for its end. */
  async #ask(run: DetachedRequest, exit: ExitWanted): Promise<DetachedRunStatus> {
    for (;;) {
      let leave: (() => void) | null = null
      try {
        const host = await this.#engine.state(targetOf(run), exit.signal)
        const stays = exit.toTheEnd && goesOn(host)
        leave = stays ? this.#waits.enter(run.machine_id) : null
        const heard = await this.#heard(run, host, stays && leave === null ? null : exit)
        if (!stays || leave !== null) return heard
      } catch (error) {
        // Others ask too much just now, here or there: that ends no wait.
        if (!isFullThere(error) && !(exit.toTheEnd && isAppError(error, 'rate_limited'))) throw error
      } finally {
        leave?.()
      }
      await this.#waits.pause(run.machine_id, exit.signal)
    }
  }

  /** Its host knows nothing of it any more, or never did. */
  async #gone(id: RequestId, { data }: AppError): Promise<void> {
    if (data['state'] === 'expired') await this.#asked.record(id, { state: 'expired', code: null, signal: null, denial_reason: null })
  }

  /** What its host said is told all the same where the row was forgotten meanwhile. */
  async #record(before: DetachedRequest, host: DetachedInfo, outcome: RunOutcome | null): Promise<DetachedRequest> {
    const news = newsOf(host, outcome)
    const run = await this.#asked.record(before.request_id, news).catch((error: unknown) => {
      if (isAppError(error, 'unknown_run')) return hasEnd(before) ? before : { ...before, ...news }
      throw error
    })
    this.#stories.heard(run, outcome)
    return run
  }

  /** Writes down what a host said. `exit`: its signed Exit is had as well, by attaching behind the last byte, `toTheEnd` also where it is still to come. */
  async #heard(before: DetachedRequest, host: DetachedInfo, exit: ExitWanted | null = null): Promise<DetachedRunStatus> {
    const run = await this.#record(before, host, null)
    const isWanted = exit !== null && (exit.toTheEnd ? goesOn(host) || host.state === 'ended' : host.state === 'ended' && !hasEnd(run))
    if (!isWanted) return { run, host, problem: null, outcome: null }
    const attach = async (): Promise<AttachOutcome> => this.#engine.attach(targetOf(run), host.bytes_kept, silent, exit.signal)
    const { info, outcome } = await (goesOn(host) ? attach() : this.#waits.fetch(run.machine_id, exit.signal, attach))
    return { run: await this.#record(run, info, outcome), host: info, problem: null, outcome }
  }
}

/** Its host may know more than we do. */
const needsAsking = (run: DetachedRequest): boolean => !isOver(run.state) || (run.state === 'ended' && !hasEnd(run))
