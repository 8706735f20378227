import { rm } from 'node:fs/promises'
import { type Clock, within } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { processState } from '../base/process-info.ts'
import type { Startable } from '../base/startable.ts'
import { readPidFile, writePidFile } from './lock.ts'

/** First and longest delay before restarting a process. It doubles each time. */
const RESPAWN_MIN_MS = 100
const RESPAWN_MAX_MS = 10_000
/** A process that lived this long resets the delay. */
const LIVED_WELL_MS = 60_000
/** Time for a process of an earlier daemon to end after SIGKILL. */
const ORPHAN_EXIT_MS = 1_000

export interface SupervisedChild {
  readonly pid: number
  /** Rejects if the process ends before it serves. */
  readonly ready: Promise<void>
  /** Resolves at the end with its reason. */
  readonly ended: Promise<string>
  askToStop(): void
  kill(): void
}

export interface SupervisorInit {
  /** Name in the log. */
  readonly name: string
  readonly pidFile: string
  /** Time from the stop request to SIGKILL. */
  readonly stopMs: number
  /** Time that the start waits for the first child before it continues without it. Null means that the child is required, and its error is thrown. */
  readonly patienceMs: number | null
  readonly begin: () => Promise<SupervisedChild>
}

const ORPHAN_POLL_MS = 10

/** Starts a process, restarts it when it ends, and ends it with this process. */
export class Supervisor implements Startable {
  readonly #clock: Clock
  readonly #log: Logger
  readonly #init: SupervisorInit
  readonly #stopping = Promise.withResolvers<void>()
  #stopped = false
  #child: SupervisedChild | null = null
  /** Clock reading at the start of `#child`. */
  #began = 0
  #beginning: Promise<SupervisedChild | null> = Promise.resolve(null)
  #keeping: Promise<void> = Promise.resolve()

  constructor(components: { clock: Clock; log: Logger }, init: SupervisorInit) {
    this.#clock = components.clock
    this.#log = components.log
    this.#init = init
  }

  async start(): Promise<void> {
    const { patienceMs } = this.#init
    const first = await (this.#beginning = this.#begin())
    if (patienceMs === null) await first?.ready
    else if (first !== null) await this.#wait(patienceMs, first.ready)
    this.#keeping = this.#keep(first)
  }

  /** Asks the child to stop and schedules SIGKILL after `stopMs`, without waiting. `stop` waits. */
  askToStop(): void {
    if (this.#stopped) return
    this.#stopped = true
    this.#stopping.resolve()
    const child = this.#child
    if (child === null) return
    child.askToStop()
    const timer = this.#clock.setTimeout(() => child.kill(), this.#init.stopMs)
    void child.ended.then(() => timer.cancel())
  }

  async stop(): Promise<void> {
    this.askToStop()
    // A start that is still under way may have begun a child.
    await this.#beginning.catch(() => undefined)
    await this.#child?.ended
    await this.#keeping
    if (this.#child !== null) await rm(this.#init.pidFile, { force: true })
  }

  /** The first child, or null if it could not be started or was stopped before. */
  async #begin(): Promise<SupervisedChild | null> {
    await this.#endOrphan()
    if (this.#stopped) return null
    return this.#init.patienceMs === null ? this.#start() : this.#again()
  }

  /** Ends a child of a killed daemon, which would hold the ports of the next one. */
  async #endOrphan(): Promise<void> {
    const orphan = await readPidFile(this.#init.pidFile)
    // If the system does not tell when a process began, the process may be any.
    if (orphan === null || orphan.started === '0' || processState(orphan) !== 'alive') return
    process.kill(orphan.pid, 'SIGKILL')
    const deadline = this.#clock.monotonic() + ORPHAN_EXIT_MS
    while (this.#clock.monotonic() < deadline && processState(orphan) === 'alive') await this.#wait(ORPHAN_POLL_MS)
  }

  async #start(): Promise<SupervisedChild> {
    const { begin, pidFile } = this.#init
    this.#began = this.#clock.monotonic()
    const child = await begin()
    // `start` waits at most `patienceMs`. A later rejection has no other handler.
    child.ready.catch(() => undefined)
    this.#child = child
    try {
      if (child.pid > 0) await writePidFile(pidFile, child.pid)
      if (this.#stopped) child.kill()
    } catch (error) {
      // Without its pid file, the child could not be found after a crash of this process, and a second one would be started.
      child.kill()
      await child.ended
      throw error
    }
    return child
  }

  async #keep(first: SupervisedChild | null): Promise<void> {
    const { name } = this.#init
    let wait = RESPAWN_MIN_MS
    for (let child = first; ;) {
      const how: string = child === null ? 'it could not be started' : await child.ended
      if (this.#stopped) return
      if (this.#clock.monotonic() - this.#began > LIVED_WELL_MS) wait = RESPAWN_MIN_MS
      this.#log.error({ how, again_in_ms: wait }, `${name} ended; the executor continues, and restarts it`)
      await this.#wait(wait)
      if (this.#stopped) return
      wait = Math.min(wait * 2, RESPAWN_MAX_MS)
      child = await this.#again()
    }
  }

  /** Null if no process could be created. */
  async #again(): Promise<SupervisedChild | null> {
    const why = (error: unknown): void => {
      if (!this.#stopped) this.#log.error({ err: errorText(error) }, `${this.#init.name} could not be started`)
    }
    try {
      const child = await this.#start()
      void child.ready.catch(why)
      return child
    } catch (error) {
      why(error)
      return null
    }
  }

  /** Waits until the time is up, `something` has settled, or the supervisor stops. */
  async #wait(ms: number, something?: Promise<unknown>): Promise<void> {
    const others = something === undefined ? [] : [something.catch(() => undefined)]
    await within(this.#clock, ms, Promise.race([this.#stopping.promise, ...others]))
  }
}
