import { randomUUID } from 'node:crypto'

import type { Clock } from '../base/clock.ts'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { MAX_JOURNAL_BATCH_BYTES, MAX_JOURNAL_LINE, MAX_JOURNAL_QUEUE_BYTES } from '../protocol/local-limits.ts'
import type { AnyRunKey, JournalEvent } from './events.ts'
import { JournalFile } from './journal-file.ts'
import { Chain, prepareLine, type EncodedLine, type PreparedLine } from './line.ts'
import { endedAmong, endsRun, keyOf } from './run-ends.ts'
import type { RunMarks } from './run-marks.ts'

export interface JournalInit {
  /** Absolute: `audit_log_path` of the ACL file, or `requests.jsonl` of the data directory. */
  readonly path: string
  /** What is running now; null for a journal of no runs. */
  readonly marks: RunMarks | null
}

/** For diagnostics. */
export interface JournalStatus {
  readonly path: string
  readonly writable: boolean
  /** Why not, when it is not. */
  readonly problem: string | null
}

interface Waiting {
  readonly line: PreparedLine
  readonly size: number
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** They announce no effect, so nothing waits for the disk to have them: the next line that does takes them along. */
const NOTES: ReadonlySet<string> = new Set<JournalEvent['event']>(['started', 'warning', 'session', 'file_read'])

/** Room for what `encode` puts before the members. */
const HEAD_BYTES = 256

/**
 * The append-only record of every decision and run. `append` settles when the line is on the disk;
 * concurrent lines share one write and one sync. Every line names the hash of the one before it.
 */
export class Journal implements Startable {
  readonly #clock: Clock
  readonly #log: Logger
  readonly #file: JournalFile
  readonly #marks: RunMarks | null
  readonly #chain: Chain
  #queue: Waiting[] = []
  #queuedBytes = 0
  /** The work on the file that goes on now; never two at once. */
  #working: Promise<void> | null = null
  #unreported: AnyRunKey[] = []
  /** Nobody waits for them but our end: what is left behind costs the next start. */
  readonly #unmarking = new Set<Promise<void>>()
  #problem: string | null = null
  #open = false

  constructor(components: { clock: Clock; log: Logger }, init: JournalInit) {
    this.#clock = components.clock
    this.#log = components.log
    this.#file = new JournalFile({ path: init.path })
    this.#marks = init.marks
    this.#chain = new Chain({ id: randomUUID() })
  }

  get path(): string {
    return this.#file.path
  }

  /**
   * Closes the runs of those who died as `lost`. A journal that cannot be written is no reason not
   * to start: runs are denied until it can be.
   */
  async start(): Promise<void> {
    const lost = (await this.#marks?.open()) ?? []
    this.#open = true
    await this.status()
    this.#unreported = [...lost]
    await this.#reportLost()
  }

  /** Writes what waits, then closes. */
  async stop(): Promise<void> {
    this.#open = false
    while (this.#working !== null) await this.#working
    await Promise.all(this.#unmarking)
    await this.#file.close()
  }

  /**
   * Settles when the event is durable, or written where it is a note; rejects `journal_unavailable` when it is
   * not. The line that begins a run also marks it as running; an `exit`, or a `denial` because it could not be started,
   * takes the mark away.
   */
  async append(event: JournalEvent): Promise<void> {
    if (this.#marks?.marks(event) !== true) {
      await this.#enqueue(event)
      if (endsRun(event) && this.#marks?.has(event)) this.#unmarkSoon(event)
      return
    }
    const [mark, line] = await Promise.allSettled([this.#marks.add(event), this.#enqueue(event)])
    if (line.status === 'rejected') {
      if (mark.status === 'fulfilled') await this.#unmark(event)
      throw line.reason
    }
    if (mark.status === 'rejected') throw unavailable('the mark of a running run could not be made', mark.reason)
  }

  /** Whether a line could be written now, as far as one can know without writing it. */
  async status(): Promise<JournalStatus> {
    if (this.#open && this.#working === null) {
      await this.#work(() => this.#look())
    }
    return { path: this.#file.path, writable: this.#problem === null, problem: this.#problem }
  }

  async #look(): Promise<void> {
    try {
      await this.#file.ready()
      this.#note(null, (await this.#file.hasRoom()) ? null : new Error('no space left on the disk'))
    } catch (error) {
      this.#note(null, error)
    }
  }

  #enqueue(event: JournalEvent): Promise<void> {
    if (!this.#open) return Promise.reject(unavailable('the journal is not open', null))
    const line = prepareLine(event, this.#clock.now())
    const size = HEAD_BYTES + Buffer.byteLength(line.members)
    if (size > MAX_JOURNAL_LINE) return Promise.reject(unavailable('the line is too long', null))
    if (this.#queuedBytes + size > MAX_JOURNAL_QUEUE_BYTES) return Promise.reject(unavailable('the disk does not keep up', null))
    this.#queuedBytes += size
    return new Promise((resolve, reject) => {
      this.#queue.push({ line, size, resolve, reject })
      // Not at once: what is appended in this very turn goes into the same batch.
      if (this.#working === null) void this.#work(() => this.#flush())
    })
  }

  async #work(task: () => Promise<void>): Promise<void> {
    this.#working = Promise.resolve()
      .then(task)
      .finally(() => {
        this.#working = null
        if (this.#queue.length > 0) void this.#work(() => this.#flush())
      })
    return this.#working
  }

  async #flush(): Promise<void> {
    while (this.#queue.length > 0) await this.#writeBatch(this.#takeBatch())
  }

  #takeBatch(): Waiting[] {
    let bytes = 0
    let count = 0
    for (const { size } of this.#queue) {
      if (count > 0 && bytes + size > MAX_JOURNAL_BATCH_BYTES) break
      bytes += size
      count += 1
    }
    this.#queuedBytes -= bytes
    return this.#queue.splice(0, count)
  }

  async #writeBatch(batch: readonly Waiting[]): Promise<void> {
    const lines = this.#chain.encode(batch.map(({ line }) => line))
    let written = 0
    let failure: unknown = null
    try {
      written = await this.#appendLines(lines)
      if (written < lines.length) failure = new Error('no space left on the disk')
      if (batch.slice(0, written).some(({ line }) => !NOTES.has(line.event))) await this.#file.sync()
    } catch (error) {
      // Lines may be in the file and yet not be safe: they keep their place in the chain, and count as not written.
      written = 0
      failure = error
    }
    // Before anybody is told, so that whoever then asks for the state of the journal gets this one.
    this.#note(batch.length, failure)
    for (const one of batch.slice(0, written)) one.resolve()
    const error = failure === null ? null : unavailable(`${this.#file.path} cannot be written`, failure)
    for (const one of batch.slice(written)) one.reject(error)
    if (failure !== null) await this.#file.close().catch(() => {})
  }

  /** How many whole lines went in; the chain goes on behind these. */
  async #appendLines(lines: readonly EncodedLine[]): Promise<number> {
    await this.#file.ready()
    const feed = Buffer.from('\n')
    let room = await this.#file.append(Buffer.concat(lines.flatMap(({ bytes }) => [bytes, feed])))
    let whole = 0
    for (const { bytes } of lines) {
      room -= bytes.length + 1
      if (room < 0) break
      whole += 1
    }
    this.#chain.commit(lines.slice(0, whole))
    return whole
  }

  /** Says once that the journal fails, and once that it works again. */
  #note(lines: number | null, failure: unknown): void {
    const before = this.#problem
    this.#problem = failure === null ? null : errorText(failure)
    const fields = { path: this.#file.path, problem: this.#problem, lines }
    if (this.#problem !== null && before === null) this.#log.error(fields, 'the journal cannot be written: what it would record is refused')
    if (this.#problem === null && before !== null) this.#log.warn(fields, 'the journal can be written again')
    if (this.#problem === null && this.#unreported.length > 0) void this.#reportLost()
  }

  /**
   * Runs that cannot be reported now keep their marks and are tried again when the journal works. One whose
   * end is written only kept its mark: who wrote it died between the two.
   */
  async #reportLost(): Promise<void> {
    if (this.#problem !== null) return
    const keys = this.#unreported
    this.#unreported = []
    const ended = await endedAmong(this.#file.path, keys).catch((): ReadonlySet<string> => new Set())
    for (const key of keys) {
      try {
        if (!ended.has(keyOf(key))) await this.#enqueue({ event: 'lost', ...key })
        await this.#unmark(key)
      } catch {
        this.#unreported.push(key)
      }
    }
  }

  #unmarkSoon(key: AnyRunKey): void {
    const gone = this.#unmark(key).finally(() => this.#unmarking.delete(gone))
    this.#unmarking.add(gone)
  }

  async #unmark(key: AnyRunKey): Promise<void> {
    try {
      await this.#marks?.remove(key)
    } catch (error) {
      this.#log.warn({ error: errorText(error) }, 'the mark of an ended run could not be removed')
    }
  }
}

const unavailable = (what: string, cause: unknown): AppError =>
  isAppError(cause, 'journal_unavailable')
    ? cause
    : new AppError('journal_unavailable', cause === null ? what : `${what}: ${errorText(cause)}`, { cause: cause ?? undefined })
