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

/** Runs of a parsed file, oldest first. Throws `bad_runs` with file and field. */
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

/** The row of a new run, without the fields that only its target knows. */
export type NewDetachedRequest = Omit<DetachedRequest, keyof DetachedRunUpdate | 'heard_at_ms' | 'requests'> & { readonly request: string }

const NEXT = { next: 'See: x0x runs' }
const NOTHING_HEARD = { state: 'unknown', code: null, signal: null, denial_reason: null, heard_at_ms: null } as const
const UPDATED_FIELDS = ['state', 'code', 'signal', 'denial_reason'] as const

/** Once the target has reported the run, one of the known Requests started it, so none of them may be dropped. */
const requestsWith = (before: DetachedRequest | undefined, request: string): readonly string[] => {
  if (before === undefined) return [request]
  const isThere = before.state !== 'unknown' && before.state !== 'expired' && before.denial_reason === null
  return isThere ? before.requests : [...before.requests.filter((one) => one !== request), request].slice(-MAX_ASKED_REQUESTS)
}

/**
 * Detached runs that this daemon requested. They outlive both processes, so each is on disk before its Request is sent. Concurrent changes
 * share one write.
 */
export class DetachedRequestStore {
  readonly #path: string
  readonly #deps: { readonly clock: Clock; readonly log: Logger }
  readonly #runs = new Map<RequestId, DetachedRequest>()
  /** Why the file cannot be used, or null if it can. */
  #problem: AppError | null = null
  #writing: Promise<void> = Promise.resolve()
  /** The pending write, which includes every change made until it starts. */
  #next: Promise<void> | null = null
  /** The last write failed and was logged. */
  #failing = false

  constructor(deps: { readonly clock: Clock; readonly log: Logger }, init: { path: string }) {
    this.#deps = deps
    this.#path = init.path
  }

  /** Reads the file. If it is unusable, the error is returned, and thrown by every later use. The daemon serves and keeps the file. */
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
   * Resolves when the row is on disk, to whether it is new. A run may be requested again, because its Request may not have arrived. Throws
   * `conflict` for another command with a known ID, `rate_limited` if all rows are taken by active runs, `bad_runs` if the file is
   * unusable. Then the Request must not be sent.
   */
  async ask({ request, ...asked }: NewDetachedRequest): Promise<boolean> {
    const id = asked.request_id
    const before = this.#rows().get(id)
    if (before !== undefined && (before.digest !== asked.digest || before.machine_id !== asked.machine_id))
      throw new AppError('conflict', 'request_id: another command uses this ID; each run needs a new ID')
    if (before === undefined) this.#makeRoom()
    const requests = requestsWith(before, request)
    // A denied run may be requested again and run now.
    const row: DetachedRequest = { ...(before?.denial_reason === null ? before : { ...asked, ...NOTHING_HEARD }), requests }
    this.#runs.set(id, row)
    try {
      await this.#save()
      return before === undefined
    } catch (error) {
      // The Request is not sent, so there is nothing to remember.
      if (before === undefined && this.#runs.get(id) === row) this.#runs.delete(id)
      throw this.#unwritten('no request was sent', error)
    }
  }

  /** Throws `unknown_run`, `bad_runs`. */
  get(id: RequestId): DetachedRequest {
    const run = this.#rows().get(id)
    if (run === undefined)
      throw new AppError('unknown_run', `no detached run has the ID ${id} on this daemon, or it was deleted`, {
        data: NEXT,
      })
    return run
  }

  /** Returns rows after `after`, or the oldest. Throws `bad_runs`. */
  page(after: RequestId | null, limit = ASKED_PAGE): DetachedRequestPage {
    const all = [...this.#rows().values()]
    const from = after === null ? 0 : all.findIndex(({ request_id }) => request_id === after) + 1
    return { runs: all.slice(from, from + limit), more: all.length > from + limit }
  }

  /** Records what the target reported. A known end is never overwritten. Throws like `get`. */
  async record(id: RequestId, update: DetachedRunUpdate): Promise<DetachedRequest> {
    const before = this.get(id)
    const heard_at_ms = this.#deps.clock.now()
    const run: DetachedRequest =
      isOver(before.state) && !hasEnd(update)
        ? { ...before, state: isOver(update.state) ? update.state : before.state, heard_at_ms }
        : { ...before, ...update, heard_at_ms }
    this.#runs.set(id, run)
    // Only a change is written. If the write fails, which is logged, the memory is right and the file is outdated until the next write.
    if (UPDATED_FIELDS.some((key) => run[key] !== before[key])) await this.#save().catch(() => undefined)
    return run
  }

  /** Throws like `get`, and `bad_runs` if the file cannot be written. Then the run stays known. */
  async forget(id: RequestId): Promise<DetachedRequest> {
    const run = this.get(id)
    this.#runs.delete(id)
    try {
      await this.#save()
      return run
    } catch (error) {
      this.#putBack(run)
      throw this.#unwritten('the run was not deleted', error)
    }
  }

  /** Restores the order: oldest first. */
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
        `${MAX_ASKED_RUNS} detached runs are listed, which is the limit, and none is known to have ended: update them with x0x runs --refresh, or delete one with x0x runs forget`,
      )
    this.#runs.delete(over.request_id)
  }

  /** Writes one after another. Each contains every change made before it started. */
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
      const fields = { path: this.#path, error: errorText(error), next: 'free disk space, or fix the permissions' }
      if (!this.#failing)
        this.#deps.log.error(fields, 'cannot save detached runs: none is started, and their results are lost at a restart')
      this.#failing = true
      throw error
    }
  }
}
