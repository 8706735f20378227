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
  /** Absolute path of the log, which is `audit_log_path` of the ACL, or `requests.jsonl` of the data directory. */
  readonly path: string
  /** Marks of running runs, or null for a journal without runs. */
  readonly marks: RunMarks | null
  /** SHA-256 of the policy in force, hex. Null, the default, without a policy. */
  readonly policySha256?: string | null
  /** Rate limit in bytes for lines about outgoing requests, by default unlimited. Refusals have separate limits. */
  readonly rate?: TokenBucketInit
  /** Multiple of the free-space floor to leave, by default 1. */
  readonly floors?: number
}

export interface JournalComponents {
  readonly clock: Clock
  readonly log: Logger
  /** Signer of the journal. Null, the default, means unsigned. */
  readonly signer?: AgentSigner | null
  /** Called with each written line without its line feed. It must not wait or throw. */
  readonly onWritten?: ((line: Uint8Array) => void) | null
}

export interface JournalStatus {
  readonly path: string
  readonly writable: boolean
  readonly problem: string | null
}

/** Events written below the free-space floor, so that started runs can end. */
const ENDS: ReadonlySet<string> = new Set<JournalEvent['event']>(['started', 'warning', 'exit', 'lost', 'refusals_suppressed'])

/** Outgoing requests of local clients. */
const ASKS: ReadonlySet<string> = new Set<JournalEvent['event']>(['asked', 'rules_asked', 'detached_asked'])

/** Cancellations are exempt, so that other requests cannot prevent the end of a run. Their signatures are limited elsewhere. */
const isMetered = (event: JournalEvent): boolean => ASKS.has(event.event) && !(event.event === 'detached_asked' && event.ask === 'cancel')

/** An operator's changes are also written below the floor, because clients could otherwise prevent them by filling the disk. */
const isOperators = (event: JournalEvent): boolean => event.event === 'authority' && event.code === null

/** Bytes that `encode` puts before the event's fields. */
const HEAD_BYTES = 256

/**
 * Append-only log of all decisions and runs. `append` settles when the line is on disk. Concurrent lines share one write and one sync. Each
 * line has the hash of the line before it. The first line of a chain names the last line of the chain before.
 */
export class Journal implements Startable {
  readonly #clock: Clock
  readonly #log: Logger
  readonly #writer: JournalWriter
  readonly #marks: RunMarks | null
  readonly #refusals: Refusals
  readonly #rate: TokenBucket | null
  readonly #queue = new LineQueue()
  /** The present work on the file. There is one at a time. */
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
   * Writes `began`, and `lost` for the runs of writers that died. If the journal cannot be written, the daemon starts anyway and denies
   * runs until it can.
   */
  async start(): Promise<void> {
    await this.#marks?.open()
    this.#open = true
    await this.#work(() => this.#writeBatch([]))
    await this.status()
    await this.#reportLost()
  }

  /** Writes waiting lines and the end of the chain, then closes. */
  async stop(): Promise<void> {
    if (this.#open) await this.#refusals.summarise().catch(() => {})
    this.#open = false
    while (this.#working !== null) await this.#working
    await this.#marks?.settled()
    await this.#writer.close().catch((error: unknown) => this.#record(1, error))
  }

  /**
   * Settles when the event is on disk, or written if it is a note. Rejects with `journal_unavailable`. The line that begins a run also
   * marks it as running. An `exit`, or a `denial` of a failed start, removes the mark.
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
    if (mark.status === 'rejected') throw unavailable('the mark of a run could not be written', mark.reason)
  }

  /**
   * Like `append`, for refused requests. The text is cut, and lines beyond the source's rate are only counted. The end of a run that this
   * daemon started is always written.
   */
  async refuse(event: RefusalEvent): Promise<void> {
    if (this.#marks?.isEndOfOurs(event)) return this.append(shortened(event))
    if (this.#writer.low !== null) return this.#refusals.suppress(event)
    if (!this.#refusals.admits(event)) return
    await this.append(shortened(event)).catch((error: unknown) => {
      // Not written, so it is counted.
      if (this.#open) this.#refusals.suppress(event)
      throw error
    })
  }

  /** Whether a line could be written now, checked without writing one. */
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

  /** Deferred, so that lines of the same turn share a batch. */
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
    // Before the promises settle, so that `status` reports the new state.
    this.#record(all.length, failure)
    const done = new Set(batch.slice(0, written))
    for (const one of done) one.resolve()
    if (done.size === all.length) return
    const error = unavailable(`${this.path} cannot be written`, failure ?? this.#writer.low)
    for (const one of all) if (!done.has(one)) one.reject(error)
  }

  /** Logs once that the journal fails, and once that it works again. */
  #record(lines: number | null, failure: unknown): void {
    const before = this.#problem
    const why = failure ?? this.#writer.low
    this.#problem = why === null ? null : errorText(why)
    const fields = { path: this.path, problem: this.#problem, lines }
    if (this.#problem !== null && before === null)
      this.#log.error(fields, 'the journal cannot be written: requests that it would record are denied')
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
