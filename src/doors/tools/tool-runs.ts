import { randomBytes } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { LocalExecutor, LocalOutcome, JournalledEnd, JournalledRunHandle } from '../../executor-api/local.ts'
import { MAX_KEYS } from '../../protocol/limits/tools.ts'
import type { ExecutorSession, ExecutorSessions } from '../executor-sessions.ts'
import { RUNS_ELSEWHERE } from './run-end.ts'
import type { ToolRunRecorder } from './tool-run-recorder.ts'
import { type ToolRequest, detachedIdOf, keyHash, requestHash } from './tool-request.ts'
import { INERT, ToolRun } from './tool-run.ts'

/** Idempotency keys: the run that each key started, so that a repeated call does not start another. */
export class KeyedRuns {
  /** Oldest first. */
  readonly #runs = new Map<string, ToolRun>()

  /** Null means that the key is not known. */
  get(key: string): ToolRun | null {
    return this.#runs.get(key) ?? null
  }

  keep(key: string, run: ToolRun): void {
    this.#runs.set(key, run)
    if (this.#runs.size <= MAX_KEYS) return
    const oldest = [...this.#runs].find(([, { over }]) => over)
    if (oldest !== undefined) this.#runs.delete(oldest[0])
  }

  forget(key: string): void {
    this.#runs.delete(key)
  }
}

/** The outcome of a run whose end is not known, with the reason. */
const without = (lost: string): LocalOutcome => ({
  code: null,
  signal: null,
  duration_ms: 0,
  stdout_bytes_total: 0,
  stderr_bytes_total: 0,
  truncated: true,
  denial_reason: null,
  detail: null,
  lost,
})

const INTERRUPTED =
  'interrupted: the server that started it ended before the result was known; check what the command did before you call with a new key'

const outcomeOf = (end: Exclude<JournalledEnd, { kind: 'refused' }>): LocalOutcome =>
  end.kind === 'outcome' ? end.outcome : without(end.kind === 'goes_on' ? RUNS_ELSEWHERE : INTERRUPTED)

/** Gives a run the end of the one that another server started for its key. Nothing is started, and the output is not available. */
export const restoreFromJournal = async (
  run: ToolRun,
  { started_at, cwd, timeout_ms, timeout_clamped, timed_out, descendants_ended, end }: JournalledRunHandle,
): Promise<void> => {
  if (end.kind === 'refused') return run.refuse(end.error)
  if (timeout_clamped) run.event({ type: 'warning', kind: 'timeout_clamped' })
  if (descendants_ended !== null) run.event({ type: 'warning', kind: 'descendants_ended', amount: descendants_ended })
  if (timed_out) run.event({ type: 'warning', kind: 'duration_cap_hit' })
  const ended = Promise.resolve(outcomeOf(end))
  await run.follow({ ...INERT, startedAt: started_at, cwd, caps: { timeout_ms }, ended })
}

export interface ToolRunsComponents {
  readonly executor: Pick<LocalExecutor, 'start' | 'recall'>
  readonly sessions: ExecutorSessions
  readonly clock: Clock
}

export interface ToolRunsInit {
  /** Name of the client; keys of different clients are separate. */
  readonly caller: string
  /** Resolves when another run may start. Throws the signal's reason. */
  ready(signal: AbortSignal): Promise<void>
  /** Receives the events of all runs. */
  readonly recorder?: ToolRunRecorder | null
}

/** Limits of ended runs that can still be queried: their number and the bytes of their texts. */
export const MAX_ENDED = 64
const MAX_ENDED_BYTES = 32 * 1024 * 1024
/** Limits of waiting and running runs: their number and the bytes of stdin. */
export const MAX_UNDER_WAY = 4_096
const MAX_WAITING_BYTES = 64 * 1024 * 1024

const otherCommand = (): AppError =>
  new AppError('conflict', 'idempotency_key: this key was used with another command; use a new key for a new command')

export class ToolRuns {
  readonly #deps: ToolRunsComponents
  readonly #init: ToolRunsInit
  readonly #keyed = new KeyedRuns()
  /** Unique per server process, so that IDs of an earlier process are not mistaken for current ones. */
  readonly #prefix = `run_${randomBytes(4).toString('hex')}_`
  /** Oldest first. */
  readonly #runs = new Map<string, ToolRun>()
  /** Ended runs in the order of their ends, so that a long run stays known as long as others. */
  readonly #ended = new Set<ToolRun>()
  readonly #done = new WeakMap<ToolRun, Promise<void>>()
  readonly #closing = new AbortController()
  #count = 0
  #underWay = 0
  #waitingBytes = 0

  constructor(deps: ToolRunsComponents, init: ToolRunsInit) {
    this.#deps = deps
    this.#init = init
  }

  /**
   * Starts a command, which waits while too many run, or returns the run that the key started. A key of another command is refused. Throws
   * `rate_limited`.
   */
  start(request: ToolRequest, key: string | null): ToolRun {
    if (key === null) return this.#start(request, null)
    const hash = keyHash(this.#init.caller, key)
    const known = this.#keyed.get(hash)
    const isSame = known?.requestHash === requestHash(request)
    if (known !== null && !isSame) return this.#start(request, null, otherCommand())
    // A detached run may continue although the daemon was lost, so it is asked again.
    if (known !== null && !(request.detach === true && known.state === 'interrupted')) return known
    const run = this.#start(request, hash)
    this.#keyed.keep(hash, run)
    return run
  }

  #start(request: ToolRequest, key: string | null, refusal: AppError | null = null): ToolRun {
    if (this.#underWay >= MAX_UNDER_WAY || this.#waitingBytes + request.stdin.length > MAX_WAITING_BYTES)
      throw new AppError(
        'rate_limited',
        `${this.#underWay} commands are running or waiting, which is the limit: wait until some have ended`,
      )
    const run = new ToolRun({
      id: `${this.#prefix}${++this.#count}`,
      request,
      askedAt: this.#deps.clock.now(),
      recorder: this.#init.recorder ?? null,
    })
    this.#runs.set(run.id, run)
    this.#underWay += 1
    this.#waitingBytes += request.stdin.length
    const done = this.#execute(run, key, refusal).finally(() => {
      this.#underWay -= 1
      this.#waitingBytes -= request.stdin.length
      this.#ended.add(run)
      this.#forgetOld()
    })
    this.#done.set(run, done)
    return run
  }

  /** Resolves when the run is over and its session slot is free. */
  async settled(run: ToolRun): Promise<void> {
    await this.#done.get(run)
  }

  forget(run: ToolRun): void {
    this.#ended.delete(run)
    this.#runs.delete(run.id)
    run.dropText()
  }

  /** Throws `unknown_run`. */
  get(id: string): ToolRun {
    const run = this.#runs.get(id)
    if (run === undefined)
      throw new AppError('unknown_run', `run_id: no run has the ID ${JSON.stringify(id.slice(0, 80))}; exec_list lists the known runs`)
    return run
  }

  has(id: string): boolean {
    return this.#runs.has(id)
  }

  /** Oldest first. */
  get all(): readonly ToolRun[] {
    return [...this.#runs.values()]
  }

  /** Number of runs of the same target that start earlier. Null means the run does not wait. */
  waitingBefore(run: ToolRun): number | null {
    if (run.state !== 'queued') return null
    const { target } = run.request
    return this.all.filter(({ state, request }) => state === 'queued' && request.target === target).indexOf(run)
  }

  /** Ends all runs except detached ones, and accepts no more. */
  async close(): Promise<void> {
    this.#closing.abort(new AppError('shutting_down', 'the server is stopping'))
    for (const run of this.all) if (!run.over && run.request.detach !== true) run.cancel()
    await this.#deps.sessions.close()
  }

  async #execute(run: ToolRun, key: string | null, refusal: AppError | null): Promise<void> {
    try {
      if (refusal !== null) throw refusal
      this.#closing.signal.throwIfAborted()
      if (key !== null && (await this.#recall(run, key))) return
      await this.#deps.sessions.use(run.request.target, async (session) => this.#runIn(session, run, key))
    } catch (error) {
      run.refuse(error)
    }
  }

  /** False means that no other server has started a run with this key. Throws `conflict` if it ran another command. */
  async #recall(run: ToolRun, key: string): Promise<boolean> {
    const known = await this.#deps.executor.recall(key)
    if (known === null) return false
    if (known.call_sha256 === run.requestHash) {
      // The daemon knows more about a detached run.
      if (run.request.detach === true) return false
      // A later call asks again, because the run may have ended by then.
      if (known.end.kind === 'goes_on') this.#keyed.forget(key)
      await restoreFromJournal(run, known)
      return true
    }
    this.#keyed.forget(key)
    throw otherCommand()
  }

  async #runIn({ id, turns }: ExecutorSession, run: ToolRun, key: string | null): Promise<void> {
    await turns.use(run.leaving.signal, async () => {
      await this.#init.ready(run.leaving.signal)
      const { command, args, cwd, env, timeout_ms, wish, detach } = run.request
      const start = { session: id, argv: [command, ...args], shell: false, cwd, env, stdin: run.takeStdin(), input: false, timeout_ms }
      const tool = { operation: run.request.operation, key_sha256: key, call_sha256: run.requestHash }
      const limits = { tool, max_output_bytes: null, fail_on_limit: false, detach: false, terminal: null, ...(wish && { wish }) }
      const detached = detach === true && key !== null ? { detached_id: detachedIdOf(key) } : {}
      await run.follow(await this.#deps.executor.start({ ...start, ...limits, ...detached }, run, run.leaving.signal))
    })
  }

  #forgetOld(): void {
    let bytes = [...this.#ended].reduce((sum, { size }) => sum + size, 0)
    for (const run of this.#ended) {
      if (this.#ended.size <= MAX_ENDED && bytes <= MAX_ENDED_BYTES) return
      bytes -= run.size
      this.forget(run)
    }
  }
}
