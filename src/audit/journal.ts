import type { Clock, Timer } from '../base/clock.ts'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { AgentSigner } from '../identity/signing.ts'
import { JOURNAL_HEAD_MS, MAX_JOURNAL_LINE, NOTE_SYNC_MS } from '../protocol/local-limits.ts'
import type { JournalEvent } from './events.ts'
import { JournalFile } from './journal-file.ts'
import { Life } from './life.ts'
import { LineQueue, type WaitingLine } from './line-queue.ts'
import { prepareLine, type EncodedLine } from './line.ts'
import { MarkKeeper } from './mark-keeper.ts'
import type { RunMarks } from './run-marks.ts'

export interface JournalInit {
  /** Absolute: `audit_log_path` of the ACL file, or `requests.jsonl` of the data directory. */
  readonly path: string
  /** What is running now; null for a journal of no runs. */
  readonly marks: RunMarks | null
  /** SHA-256, hex, of the policy in force; null, which is the default, where there is none. */
  readonly policySha256?: string | null
  /** Other processes write it as well. Default: none does. */
  readonly shared?: boolean
}

export interface JournalComponents {
  readonly clock: Clock
  readonly log: Logger
  /** Whose key signs heads. Default: null, nobody's. */
  readonly signer?: AgentSigner | null
}

/** For diagnostics. */
export interface JournalStatus {
  readonly path: string
  readonly writable: boolean
  /** Why not, when it is not. */
  readonly problem: string | null
}

/** They announce no effect, so nobody waits for the disk to have them: the next line that does takes them along, or NOTE_SYNC_MS. */
const NOTES: ReadonlySet<string> = new Set<JournalEvent['event']>(['started', 'warning', 'session', 'file_read'])

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
  readonly #file: JournalFile
  readonly #life: Life
  readonly #marks: MarkKeeper
  readonly #queue = new LineQueue()
  /** The work on the file that goes on now; never two at once. */
  #working: Promise<void> | null = null
  /** Beside the lines of the queue: a sync of notes, and a signature over what was written. */
  readonly #due = new Set<'sync' | 'head'>()
  #syncTimer: Timer | null = null
  #headTimer: Timer | null = null
  /** In how many files we have said who signs. */
  #introduced = 0
  #problem: string | null = null
  #open = false

  constructor(components: JournalComponents, init: JournalInit) {
    const { clock, log, signer = null } = components
    const { path, marks, policySha256 = null, shared = false } = init
    this.#clock = clock
    this.#log = log
    this.#file = new JournalFile({ path, shared })
    this.#life = new Life({ clock, signer }, { path, policySha256 })
    this.#marks = new MarkKeeper({ log }, { marks })
  }

  get path(): string {
    return this.#file.path
  }

  /**
   * Says that a life begins, and closes the runs of those who died as `lost`. A journal that cannot be written
   * is no reason not to start: runs are denied until it can be.
   */
  async start(): Promise<void> {
    await this.#marks.open()
    this.#open = true
    await this.#work(() => this.#writeBatch([]))
    await this.status()
    await this.#reportLost()
  }

  /** Writes what waits and that this life ends, then closes. */
  async stop(): Promise<void> {
    const wasOpen = this.#open
    this.#open = false
    for (const timer of [this.#syncTimer, this.#headTimer]) timer?.cancel()
    while (this.#working !== null) await this.#working
    if (wasOpen && !this.#life.chain.isNew) await this.#work(() => this.#seal('stopped'))
    await this.#marks.settled()
    await this.#file.close()
  }

  /**
   * Settles when the event is durable, or written where it is a note; rejects `journal_unavailable` when it is
   * not. The line that begins a run also marks it as running; an `exit`, or a `denial` because it could not be started,
   * takes the mark away.
   */
  async append(event: JournalEvent): Promise<void> {
    if (!this.#marks.marks(event)) {
      await this.#enqueue(event)
      if (this.#marks.isEndOfOurs(event)) this.#marks.removeSoon(event)
      return
    }
    const [mark, line] = await Promise.allSettled([this.#marks.add(event), this.#enqueue(event)])
    if (line.status === 'rejected') {
      if (mark.status === 'fulfilled') await this.#marks.remove(event)
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
    if (!this.#queue.hasRoom(size)) return Promise.reject(unavailable('the disk does not keep up', null))
    return new Promise((resolve, reject) => {
      this.#queue.push({ line, size, resolve, reject })
      this.#kick()
    })
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
        if (!this.#queue.isEmpty || this.#due.size > 0) this.#kick()
      })
    return this.#working
  }

  async #flush(): Promise<void> {
    for (;;) {
      if (!this.#queue.isEmpty) await this.#writeBatch(this.#queue.takeBatch())
      else if (this.#due.delete('sync')) await this.#syncNotes()
      if (this.#due.delete('head')) await this.#seal('head')
      if (this.#queue.isEmpty && this.#due.size === 0) return
    }
  }

  async #writeBatch(batch: readonly WaitingLine[]): Promise<void> {
    let written = 0
    let failure: unknown = null
    try {
      await this.#file.ready()
      const opening = await this.#life.opening()
      const lines = this.#life.chain.encode([...opening, ...batch.map(({ line }) => line)])
      const whole = await this.#appendLines(lines)
      written = Math.max(0, whole - opening.length)
      if (whole < lines.length) failure = new Error('no space left on the disk')
      const awaited = opening.length > 0 || batch.slice(0, written).some(({ line }) => !NOTES.has(line.event))
      if (awaited) await this.#sync()
      else if (written > 0) this.#syncSoon()
      if (opening.length > 0 && whole > 0) this.#begun()
      else if (written > 0) this.#sealSoon()
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

  /** `began` is in the file: it says who signs, and what stands before it is signed at once. */
  #begun(): void {
    this.#introduced = this.#file.files
    if (this.#life.signs) this.#due.add('head')
  }

  #sealSoon(): void {
    if (!this.#life.signs || this.#headTimer !== null || !this.#open) return
    this.#headTimer = this.#clock.setTimeout(() => this.#dueNow('head'), JOURNAL_HEAD_MS, { unref: true })
  }

  /** Notes that were written before are safe with the rest. */
  async #sync(): Promise<void> {
    this.#syncTimer?.cancel()
    this.#syncTimer = null
    await this.#file.sync()
  }

  #syncSoon(): void {
    if (this.#open) this.#syncTimer ??= this.#clock.setTimeout(() => this.#dueNow('sync'), NOTE_SYNC_MS, { unref: true })
  }

  #dueNow(what: 'sync' | 'head'): void {
    if (what === 'sync') this.#syncTimer = null
    else this.#headTimer = null
    this.#due.add(what)
    this.#kick()
  }

  async #syncNotes(): Promise<void> {
    try {
      await this.#file.ready()
      await this.#file.sync()
    } catch (error) {
      this.#note(null, error)
      await this.#file.close().catch(() => {})
    }
  }

  /** While the signature is made other lines wait: some milliseconds. */
  async #seal(event: 'head' | 'stopped'): Promise<void> {
    try {
      await this.#file.ready()
      const { files } = this.#file
      const line = await this.#life.seal(event, { introduce: files !== this.#introduced })
      if ((await this.#appendLines([line])) === 0) throw new Error('no space left on the disk')
      await this.#file.sync()
      this.#introduced = files
      this.#note(1, null)
    } catch (error) {
      this.#note(1, error)
      await this.#file.close().catch(() => {})
    }
  }

  /** How many whole lines went in; the chain goes on behind these. */
  async #appendLines(lines: readonly EncodedLine[]): Promise<number> {
    const feed = Buffer.from('\n')
    let room = await this.#file.append(Buffer.concat(lines.flatMap(({ bytes }) => [bytes, feed])))
    let whole = 0
    for (const { bytes } of lines) {
      room -= bytes.length + 1
      if (room < 0) break
      whole += 1
    }
    this.#life.chain.commit(lines.slice(0, whole))
    return whole
  }

  /** Says once that the journal fails, and once that it works again. */
  #note(lines: number | null, failure: unknown): void {
    const before = this.#problem
    this.#problem = failure === null ? null : errorText(failure)
    const fields = { path: this.#file.path, problem: this.#problem, lines }
    if (this.#problem !== null && before === null) this.#log.error(fields, 'the journal cannot be written: what it would record is refused')
    if (this.#problem === null && before !== null) this.#log.warn(fields, 'the journal can be written again')
    if (this.#problem === null && this.#marks.hasLost) void this.#reportLost()
  }

  async #reportLost(): Promise<void> {
    if (this.#problem === null) await this.#marks.reportLost(this.#file.path, async (lost) => this.#enqueue(lost))
  }
}

const unavailable = (what: string, cause: unknown): AppError =>
  isAppError(cause, 'journal_unavailable')
    ? cause
    : new AppError('journal_unavailable', cause === null ? what : `${what}: ${errorText(cause)}`, { cause: cause ?? undefined })
