import type { Clock } from '../base/clock.ts'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import {
  DETACHED_REQUEST,
  type DetachedRunUpdate,
  type DetachedRequestPage,
  type DetachedRequest,
  hasEnd,
  isOver,
} from '../protocol/api/detached-run.ts'
import type { RequestId } from '../protocol/ids.ts'
import { closedProblemOf, list, record } from '../protocol/json-table.ts'
import { ASKED_PAGE, MAX_ASKED_REQUESTS, MAX_ASKED_RUNS } from '../protocol/limits/detached.ts'
import { type JsonPath, fileOf, readJsonFile, refuse, writeJsonFile } from '../trust/json-file.ts'

const FILE_VERSION = 1
const FILE = { runs: list(record(DETACHED_REQUEST), { max: MAX_ASKED_RUNS }) }

/** The runs of a parsed file, the oldest first. Throws `bad_runs` naming file and place. */
export const askedRunsOf = (value: unknown, file: string): readonly DetachedRequest[] => {
  const place: JsonPath = { file, code: 'bad_runs', path: '' }
  const { runs } = fileOf(value, FILE_VERSION, ['runs'], place)
  const problem = closedProblemOf({ runs }, FILE)
  if (problem !== null) return refuse(place, problem)
  const rows = runs as readonly DetachedRequest[]
  const seen = new Set<RequestId>()
  const twice = rows.findIndex(({ request_id }) => seen.size === seen.add(request_id).size)
  return twice === -1 ? rows : refuse(place, `runs[${twice}].request_id appears twice`)
}

/** A run that is about to be asked for: its row, but for what nobody can know yet. */
export type NewDetachedRequest = Omit<DetachedRequest, keyof DetachedRunUpdate | 'heard_at_ms' | 'requests'> & { readonly request: string }

const NEXT = { next: 'which there are: x0x runs' }
const NOTHING_HEARD = { state: 'unknown', code: null, signal: null, denial_reason: null, heard_at_ms: null } as const
const KEYS_OF_NEWS = ['state', 'code', 'signal', 'denial_reason'] as const

/** Once its host has spoken of it, one of those that are known is what runs: none of them may give way to one that changes nothing. */
const requestsWith = (before: DetachedRequest | undefined, request: string): readonly string[] => {
  if (before === undefined) return [request]
  const isThere = before.state !== 'unknown' && before.state !== 'expired' && before.denial_reason === null
  return isThere ? before.requests : [...before.requests.filter((one) => one !== request), request].slice(-MAX_ASKED_REQUESTS)
}

/**
 * The detached runs that this daemon asked for: they outlive both of its halves, so each is on the disk before its Request
 * leaves. Changes that come together share one write.
 */
export class DetachedRequestStore {
  readonly #path: string
  readonly #deps: { readonly clock: Clock; readonly log: Logger }
  readonly #runs = new Map<RequestId, DetachedRequest>()
  /** Why the file cannot be used; null: it can. */
  #problem: AppError | null = null
  #writing: Promise<void> = Promise.resolve()
  /** The write that will have whatever is changed now. */
  #next: Promise<void> | null = null
  /** The last write failed, which was said. */
  #failing = false

  constructor(deps: { readonly clock: Clock; readonly log: Logger }, init: { path: string }) {
    this.#deps = deps
    this.#path = init.path
  }

  /**
   * Reads the file. One that cannot be used is no reason to serve nobody: it is answered here, thrown by whatever needs the
   * file, and the file stays as it is.
   */
  async load(): Promise<AppError | null> {
    try {
      const value = await readJsonFile(this.#path, 'bad_runs')
      for (const run of value === undefined ? [] : askedRunsOf(value, this.#path)) this.#runs.set(run.request_id, run)
    } catch (error) {
      this.#problem = isAppError(error) ? error : new AppError('bad_runs', `${this.#path}: ${errorText(error)}`, { cause: error })
    }
    return this.#problem
  }

  get size(): number {
    return this.#runs.size
  }

  /**
   * Answers when the row is on the disk: whether it is a new one. The same run may be asked for again, since its Request may not have arrived. Throws
   * `conflict` for another command under an id that is known, `rate_limited` where all the room is taken by runs that go on,
   * `bad_runs` where the file cannot be used or written; then the Request must not leave.
   */
  async ask({ request, ...asked }: NewDetachedRequest): Promise<boolean> {
    const id = asked.request_id
    const before = this.#rows().get(id)
    if (before !== undefined && (before.digest !== asked.digest || before.machine_id !== asked.machine_id))
      throw new AppError('conflict', 'request_id: another command was asked for under this id; each run needs an id of its own')
    if (before === undefined) this.#makeRoom()
    const requests = requestsWith(before, request)
    // What was denied may run now.
    const row: DetachedRequest = { ...(before?.denial_reason === null ? before : { ...asked, ...NOTHING_HEARD }), requests }
    this.#runs.set(id, row)
    try {
      await this.#save()
      return before === undefined
    } catch (error) {
      // What could not be written does not leave, so there is nothing to remember.
      if (before === undefined && this.#runs.get(id) === row) this.#runs.delete(id)
      throw this.#unwritten('nothing was asked', error)
    }
  }

  /** Throws `unknown_run`, `bad_runs`. */
  get(id: RequestId): DetachedRequest {
    const run = this.#rows().get(id)
    if (run === undefined)
      throw new AppError('unknown_run', `this daemon has asked for no detached run under that id, or has forgotten it: ${id}`, {
        data: NEXT,
      })
    return run
  }

  /** Those behind `after`, or from the oldest on. Throws `bad_runs`. */
  page(after: RequestId | null, limit = ASKED_PAGE): DetachedRequestPage {
    const all = [...this.#rows().values()]
    const from = after === null ? 0 : all.findIndex(({ request_id }) => request_id === after) + 1
    return { runs: all.slice(from, from + limit), more: all.length > from + limit }
  }

  /** What was heard of it. How a run ended stays known, whatever comes later. Throws as `get`. */
  async record(id: RequestId, news: DetachedRunUpdate): Promise<DetachedRequest> {
    const before = this.get(id)
    const heard_at_ms = this.#deps.clock.now()
    const run: DetachedRequest =
      isOver(before.state) && !hasEnd(news)
        ? { ...before, state: isOver(news.state) ? news.state : before.state, heard_at_ms }
        : { ...before, ...news, heard_at_ms }
    this.#runs.set(id, run)
    // Only what is new is worth a write: that it was heard again is not. A disk that refuses it, which the log says, takes nothing from
    // what was heard: the file says what was true before, until the next write.
    if (KEYS_OF_NEWS.some((key) => run[key] !== before[key])) await this.#save().catch(() => undefined)
    return run
  }

  /** Throws as `get`, and `bad_runs` where the file cannot be written: then it is still known. */
  async forget(id: RequestId): Promise<DetachedRequest> {
    const run = this.get(id)
    this.#runs.delete(id)
    try {
      await this.#save()
      return run
    } catch (error) {
      this.#putBack(run)
      throw this.#unwritten('it is not forgotten', error)
    }
  }

  /** In its place: the oldest come first. */
  #putBack(run: DetachedRequest): void {
    if (this.#runs.has(run.request_id)) return
    const all = [...this.#runs.values(), run].toSorted((one, other) => one.asked_at_ms - other.asked_at_ms)
    this.#runs.clear()
    for (const one of all) this.#runs.set(one.request_id, one)
  }

  #unwritten(what: string, cause: unknown): AppError {
    return new AppError('bad_runs', `${what}, because ${this.#path} cannot be written (${errorText(cause)})`, { cause })
  }

  #rows(): Map<RequestId, DetachedRequest> {
    if (this.#problem !== null) throw this.#problem
    return this.#runs
  }

  #makeRoom(): void {
    if (this.#runs.size < MAX_ASKED_RUNS) return
    const over = [...this.#runs.values()].find(({ state }) => isOver(state))
    if (over === undefined)
      throw new AppError(
        'rate_limited',
        `${MAX_ASKED_RUNS} detached runs are remembered, and none is known to have ended; x0x runs --refresh asks their hosts, x0x runs forget lets go of one`,
      )
    this.#runs.delete(over.request_id)
  }

  /** One write after another, each of all that was changed before it began. */
  async #save(): Promise<void> {
    if (this.#next === null) {
      this.#next = this.#write(this.#writing)
      this.#writing = this.#next.catch(() => undefined)
    }
    await this.#next
  }

  async #write(before: Promise<void>): Promise<void> {
    await before
    this.#next = null
    try {
      await writeJsonFile(this.#path, { version: FILE_VERSION, runs: [...this.#runs.values()] })
      this.#failing = false
    } catch (error) {
      const fields = { path: this.#path, error: errorText(error), next: 'make room on its disk, or mend who may write there' }
      if (!this.#failing)
        this.#deps.log.error(
          fields,
          'detached runs cannot be written down: none is started, and what is heard of them is lost with a restart',
        )
      this.#failing = true
      throw error
    }
  }
}
