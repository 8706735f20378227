import type { Clock } from '../base/clock.ts'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { TokenBucket, type TokenBucketInit } from '../base/rate-limit.ts'
import type { Startable } from '../base/startable.ts'
import type { AgentSigner } from '../identity/signing.ts'
import { MAX_JOURNAL_LINE } from '../protocol/limits/daemon.ts'
import type { JournalEvent, RefusalEvent } from './events.ts'
import { prepareLine } from './line.ts'
import { Refusals, shortened } from './refusals.ts'
import type { RunMarks } from './running-marks.ts'
import { JournalWriter, LineQueue, type QueuedLine } from './writer.ts'

export interface JournalInit {
  /** Absolute: `audit_log_path` of the ACL file, or `requests.jsonl` of the data directory. */
  readonly path: string
  /** What is running now; null for a journal of no runs. */
  readonly marks: RunMarks | null
  /** SHA-256, hex, of the policy in force; null, which is the default, where there is none. */
  readonly policySha256?: string | null
  /** Bytes of lines of what is asked that it takes: callers may ask without end, and refusals have meters of their own. Default: as many as come. */
  readonly rate?: TokenBucketInit
  /** How many times the floor of free space it leaves to others. Default: once. */
  readonly floors?: number
}

export interface JournalComponents {
  readonly clock: Clock
  readonly log: Logger
  /** Whose key signs heads. Default: null, nobody's. */
  readonly signer?: AgentSigner | null
  /** Hears each line that is in the file, without its line feed; it must neither wait nor throw. Default: null, nobody. */
  readonly onWritten?: ((line: Uint8Array) => void) | null
}

/** For diagnostics. */
export interface JournalStatus {
  readonly path: string
  readonly writable: boolean
  /** Why not, when it is not. */
  readonly problem: string | null
}

/** Events that are written below the floor of free space, so that what has begun may end. */
const ENDS: ReadonlySet<string> = new Set<JournalEvent['event']>(['started', 'warning', 'exit', 'lost', 'refusals_suppressed'])

/** What callers of this host ask of others: Requests, and the questions that run nothing. */
const ASKS: ReadonlySet<string> = new Set<JournalEvent['event']>(['asked', 'rules_asked', 'detached_asked'])

/** What ends a run is not kept out by what is asked beside it: how often it is signed is bounded. */
const isMetered = (event: JournalEvent): boolean => ASKS.has(event.event) && !(event.event === 'detached_asked' && event.ask === 'cancel')

/** Proven changes by an operator are written below the floor, too: others could keep them out by filling the disk. */
const isOperators = (event: JournalEvent): boolean => event.event === 'authority' && event.code === null

/** Room for what `encode` puts before the members. */
const HEAD_BYTES = 256

/**
 * The append-only record of every decision and run. `append` settles when the line is on the disk;
 * concurrent lines share one write and one sync. Every line names the hash of the one before it, the first one of
 * a life the last one of the life before.
 */
export class Journal implements Startable {
  readonly #clock: Clock
  readonly #log: Logger
  readonly #writer: JournalWriter
  readonly #marks: RunMarks | null
  readonly #refusals: Refusals
  readonly #rate: TokenBucket | null
  readonly #queue = new LineQueue()
  /** The work on the file that goes on now; never two at once. */
  #working: Promise<void> | null = null
  #problem: string | null = null
  #open = false

  constructor(components: JournalComponents, init: JournalInit) {
    const { clock, log, signer = null, onWritten = null } = components
    const { path, marks, policySha256 = null, rate, floors = 1 } = init
    this.#clock = clock
    this.#log = log
    this.#writer = new JournalWriter({ clock, signer }, { path, policySha256, floors, onDue: () => this.#kick(), onWritten })
    this.#marks = marks
    this.#refusals = new Refusals({ clock }, { write: async (event) => this.#enqueue(event) })
    this.#rate = rate ? new TokenBucket({ clock }, rate) : null
  }

  get path(): string {
    return this.#writer.path
  }

  /**
   * Writes `began`, and `lost` for the runs of writers that died. A journal that cannot be written
   * is no reason not to start: runs are denied until it can be.
   */
  async start(): Promise<void> {
    await this.#marks?.open()
    this.#open = true
    await this.#work(() => this.#writeBatch([]))
    await this.status()
    await this.#reportLost()
  }

  /** Writes what waits and that this life ends, then closes. */
  async stop(): Promise<void> {
    if (this.#open) await this.#refusals.summarise().catch(() => {})
    this.#open = false
    while (this.#working !== null) await this.#working
    await this.#marks?.settled()
    await this.#writer.close().catch((error: unknown) => this.#record(1, error))
  }

  /**
   * Settles when the event is durable, or written where it is a note; rejects `journal_unavailable` when it is
   * not. The line that begins a run also marks it as running; an `exit`, or a `denial` because it could not be started,
   * takes the mark away.
   */
  async append(event: JournalEvent): Promise<void> {
    const marks = this.#marks
    if (!marks?.marks(event)) {
      await this.#enqueue(event)
      if (marks?.isEndOfOurs(event)) marks.removeSoon(event)
      return
    }
    const [mark, line] = await Promise.allSettled([marks.add(event), this.#enqueue(event)])
    if (line.status === 'rejected') {
      if (mark.status === 'fulfilled') await marks.remove(event)
      throw line.reason
    }
    if (mark.status === 'rejected') throw unavailable('the mark of a running run could not be made', mark.reason)
  }

  /**
   * As `append`, for what was asked and may not be: cut short, and beyond what its source may write only counted.
   * The end of a run of ours is written in any case.
   */
  async refuse(event: RefusalEvent): Promise<void> {
    if (this.#marks?.isEndOfOurs(event)) return this.append(shortened(event))
    if (this.#writer.low !== null) return this.#refusals.suppress(event)
    if (!this.#refusals.admits(event)) return
    await this.append(shortened(event)).catch((error: unknown) => {
      // Not written, and so counted.
      if (this.#open) this.#refusals.suppress(event)
      throw error
    })
  }

  /** Whether a line could be written now, as far as one can know without writing it. */
  async status(): Promise<JournalStatus> {
    if (this.#open && this.#working === null)
      await this.#work(async () => {
        const failure: unknown = await this.#writer.look().then(
          () => null,
          (error: unknown) => error,
        )
        this.#record(null, failure)
      })
    return { path: this.path, writable: this.#problem === null, problem: this.#problem }
  }

  #enqueue(event: JournalEvent): Promise<void> {
    if (!this.#open) return Promise.reject(unavailable('the journal is not open', null))
    const line = prepareLine(event, this.#clock.now())
    const size = HEAD_BYTES + Buffer.byteLength(line.members)
    if (size > MAX_JOURNAL_LINE) return Promise.reject(unavailable('the line is too long', null))
    if (isMetered(event) && this.#rate?.take(size) === false)
      return Promise.reject(new AppError('rate_limited', `too much at once for ${this.path}`))
    if (!this.#queue.hasRoom(size)) return Promise.reject(unavailable('the disk does not keep up', null))
    return new Promise((resolve, reject) => {
      this.#queue.push({ line, size, belowFloor: this.#goesBelowFloor(event), resolve, reject })
      this.#kick()
    })
  }

  #goesBelowFloor(event: JournalEvent): boolean {
    return ENDS.has(event.event) || isOperators(event) || this.#marks?.isEndOfOurs(event) === true
  }

  /** Not at once: what is appended in this very turn goes into the same batch. */
  #kick(): void {
    if (this.#working === null) void this.#work(() => this.#flush())
  }

  async #work(task: () => Promise<void>): Promise<void> {
    this.#working = Promise.resolve()
      .then(task)
      .finally(() => {
        this.#working = null
        if (!this.#queue.isEmpty || this.#writer.isDue) this.#kick()
      })
    return this.#working
  }

  async #flush(): Promise<void> {
    while (!this.#queue.isEmpty || this.#writer.isDue) {
      if (!this.#queue.isEmpty) await this.#writeBatch(this.#queue.takeBatch())
      await this.#writer.doDue().catch((error: unknown) => this.#record(1, error))
    }
  }

  async #writeBatch(all: readonly QueuedLine[]): Promise<void> {
    let batch = all
    let written = 0
    let failure: unknown = null
    try {
      await this.#writer.ready(all.reduce((sum, { size }) => sum + size, 0))
      let left = this.#writer.spare
      if (this.#writer.low !== null) batch = all.filter(({ belowFloor, size }) => (left -= size) >= 0 || belowFloor)
      written = await this.#writer.write(batch.map(({ line }) => line))
      if (written < batch.length) failure = new Error('no space left on the disk')
    } catch (error) {
      failure = error
    }
    // Before the callers' promises settle, so that `status` answers the new state by then.
    this.#record(all.length, failure)
    const done = new Set(batch.slice(0, written))
    for (const one of done) one.resolve()
    if (done.size === all.length) return
    const error = unavailable(`${this.path} cannot be written`, failure ?? this.#writer.low)
    for (const one of all) if (!done.has(one)) one.reject(error)
  }

  /** Says once that the journal fails, and once that it works again. */
  #record(lines: number | null, failure: unknown): void {
    const before = this.#problem
    const why = failure ?? this.#writer.low
    this.#problem = why === null ? null : errorText(why)
    const fields = { path: this.path, problem: this.#problem, lines }
    if (this.#problem !== null && before === null) this.#log.error(fields, 'the journal cannot be written: what it would record is refused')
    if (this.#problem === null && before !== null) this.#log.warn(fields, 'the journal can be written again')
    if (this.#problem === null && this.#marks?.hasLost) void this.#reportLost()
  }

  async #reportLost(): Promise<void> {
    if (this.#problem === null) await this.#marks?.reportLost(this.path, async (lost) => this.#enqueue(lost))
  }
}

const unavailable = (what: string, cause: unknown): AppError =>
  isAppError(cause, 'journal_unavailable')
    ? cause
    : new AppError('journal_unavailable', cause === null ? what : `${what}: ${errorText(cause)}`, { cause: cause ?? undefined })
