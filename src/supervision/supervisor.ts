import { rm } from 'node:fs/promises'
import { type Clock, within } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { processState } from '../base/process-info.ts'
import type { Startable } from '../base/startable.ts'
import { readPidFile, writePidFile } from './lock.ts'

/** Wait before a process that died is started again: first, doubled each time, and at most. */
const RESPAWN_MIN_MS = 100
const RESPAWN_MAX_MS = 10_000
/** A process that lived this long was well: the wait begins anew. */
const LIVED_WELL_MS = 60_000
/** How long a process that an earlier daemon left behind may take to be gone when it is killed. */
const ORPHAN_EXIT_MS = 1_000

/** One child process, from its spawn to its end. */
export interface SupervisedChild {
  readonly pid: number
  /** Rejects when it ends before it serves. */
  readonly ready: Promise<void>
  /** Says how. */
  readonly ended: Promise<string>
  askToStop(): void
  kill(): void
}

export interface SupervisorInit {
  /** What the log calls it. */
  readonly name: string
  /** The file that says which process it is. */
  readonly pidFile: string
  /** From being asked to stop to being killed. */
  readonly stopMs: number
  /**
   * How long the start waits for the first to be ready, to go on without it. Null: it is a part that nothing goes
   * without, and what keeps the first from being ready is thrown.
   */
  readonly patienceMs: number | null
  readonly begin: () => Promise<SupervisedChild>
}

const ORPHAN_POLL_MS = 10

/** A process that is started, started again when it dies, and ended with us. */
export class Supervisor implements Startable {
  readonly #clock: Clock
  readonly #log: Logger
  readonly #init: SupervisorInit
  readonly #stopping = Promise.withResolvers<void>()
  #stopped = false
  #child: SupervisedChild | null = null
  /** Clock reading when `#child` was begun. */
  #began = 0
  #keeping: Promise<void> = Promise.resolve()

  constructor(components: { clock: Clock; log: Logger }, init: SupervisorInit) {
    this.#clock = components.clock
    this.#log = components.log
    this.#init = init
  }

  async start(): Promise<void> {
    const { patienceMs } = this.#init
    await this.#endOrphan()
    const first = patienceMs === null ? await this.#start() : await this.#again()
    if (patienceMs === null) await first?.ready
    else if (first !== null) await this.#wait(patienceMs, first.ready)
    this.#keeping = this.#keep(first)
  }

  /** Asks the child to stop and has it killed after `stopMs`, without waiting for either; `stop` does. */
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
    await this.#child?.ended
    await this.#keeping
    if (this.#child !== null) await rm(this.#init.pidFile, { force: true })
  }

  /** Ends the child that a killed daemon has left: it would hold the ports that the next one needs. */
  async #endOrphan(): Promise<void> {
    const orphan = await readPidFile(this.#init.pidFile)
    // Where the system does not tell when a process began, it may be any.
    if (orphan === null || orphan.started === '0' || processState(orphan) !== 'alive') return
    process.kill(orphan.pid, 'SIGKILL')
    const deadline = this.#clock.monotonic() + ORPHAN_EXIT_MS
    while (this.#clock.monotonic() < deadline && processState(orphan) === 'alive') await this.#wait(ORPHAN_POLL_MS)
  }

  async #start(): Promise<SupervisedChild> {
    const { begin, pidFile } = this.#init
    this.#began = this.#clock.monotonic()
    const child = await begin()
    // `start` waits no longer than `patienceMs`: a rejection after that has no other handler.
    child.ready.catch(() => undefined)
    this.#child = child
    try {
      if (child.pid > 0) await writePidFile(pidFile, child.pid)
      if (this.#stopped) child.kill()
    } catch (error) {
      // Without its pid file nobody would find the child after a crash of ours, and another would be started beside it.
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
      this.#log.error({ how, again_in_ms: wait }, `${name} ended; the executor goes on, and starts it again`)
      await this.#wait(wait)
      if (this.#stopped) return
      wait = Math.min(wait * 2, RESPAWN_MAX_MS)
      child = await this.#again()
    }
  }

  /** Null where not even a process came of it. */
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

  /** Waits until the time is up, `something` has settled, or we stop. */
  async #wait(ms: number, something?: Promise<unknown>): Promise<void> {
    const others = something === undefined ? [] : [something.catch(() => undefined)]
    await within(this.#clock, ms, Promise.race([this.#stopping.promise, ...others]))
  }
}
