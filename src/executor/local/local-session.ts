import { type Clock, within } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { TimeShare, TimeSharing } from '../../base/time-sharing.ts'
import { Turnstile } from '../../base/turnstile.ts'
import type { LocalKey } from '../../journal/events.ts'
import type { SessionRights } from '../../policy/local/intent.ts'
import { Slots } from '../../policy/slots.ts'
import type { LifecycleFacts } from '../../protocol/lifecycle.ts'
import { MAX_FILE_PLACES, SESSION_CLOSE_MS } from '../../protocol/rexd-limits.ts'
import type { EndCause } from '../runs/execution.ts'

interface SessionRun {
  readonly over: boolean
  end(cause: EndCause): void
  kill(): void
}

/** Runs that are ended together. */
export class RunSet {
  readonly #clock: Clock
  readonly #runs = new Map<SessionRun, Promise<void>>()

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  /** Holds the run until its work is over. */
  add(run: SessionRun, work: Promise<void>): void {
    this.#runs.set(
      run,
      work.finally(() => this.#runs.delete(run)),
    )
  }

  /** Ends every program, and answers when all are over; how many there were. */
  async end(cause: EndCause): Promise<number> {
    const runs = [...this.#runs.keys()].filter(({ over }) => !over)
    for (const run of runs) run.end(cause)
    const timer = this.#clock.setTimeout(() => {
      for (const run of runs) run.kill()
    }, SESSION_CLOSE_MS)
    await Promise.all(this.#runs.values())
    timer.cancel()
    return runs.length
  }
}

/** A session of a local caller: its rights, its runs and file calls, and its share of the event loop. */
export class LocalSession {
  readonly key: LocalKey
  readonly rights: SessionRights
  readonly slots: Slots
  readonly runs: RunSet
  /** Hears what becomes of its runs; null: nobody does. */
  readonly tell: ((facts: LifecycleFacts) => void) | null
  readonly #clock: Clock
  readonly #share: TimeShare
  readonly #ending = new AbortController()
  readonly #fileTurns = new Turnstile({ limit: MAX_FILE_PLACES })
  readonly #fileCalls = new Set<Promise<unknown>>()
  #closing: Promise<number> | null = null

  constructor(
    components: { clock: Clock; timeSharing: TimeSharing },
    init: { key: LocalKey; rights: SessionRights; tell: LocalSession['tell'] },
  ) {
    this.key = init.key
    this.rights = init.rights
    this.tell = init.tell
    this.runs = new RunSet(components)
    this.#clock = components.clock
    this.#share = components.timeSharing.share(this.#ending.signal)
    const max = init.rights.limits.max_processes_per_session
    this.slots = new Slots({ max_concurrent_per_agent: max, max_concurrent_total: max })
  }

  get closed(): boolean {
    return this.#closing !== null
  }

  /** Aborted when it is closed, with the reason. */
  get ending(): AbortSignal {
    return this.#ending.signal
  }

  /** Does one file call, which takes so many of MAX_FILE_PLACES. Closing the session, and `signal`, abort it, unless it has begun to change something. */
  async aboutFiles<T>(places: number, work: (share: TimeShare) => Promise<T>, signal: AbortSignal | null = null): Promise<T> {
    const share = signal === null ? this.#share : this.#share.until(signal)
    const leave = await this.#fileTurns.enter(share.signal, places)
    const call = work(share)
    this.#fileCalls.add(call)
    try {
      return await call
    } finally {
      this.#fileCalls.delete(call)
      leave()
    }
  }

  /** Ends every program that is its own, and answers when all are over; how many there were. A second call waits for the first. */
  async close(cause: EndCause): Promise<number> {
    this.#closing ??= this.#end(cause)
    return this.#closing
  }

  async #end(cause: EndCause): Promise<number> {
    this.#ending.abort(new AppError('unknown_session', 'the session was closed meanwhile'))
    const [ended] = await Promise.all([this.runs.end(cause), this.#filesDone()])
    return ended
  }

  /** What is being written is not left half-written, unless the file system does not answer. */
  async #filesDone(): Promise<void> {
    await within(this.#clock, SESSION_CLOSE_MS, Promise.allSettled(this.#fileCalls))
  }
}
