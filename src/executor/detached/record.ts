import type { OutputName } from '../../protocol/reasons.ts'
import type { Clock } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { DETACHED_KEPT_MS } from '../../protocol/limits/detached.ts'
import { MAX_WARNINGS_PER_RUN } from '../../protocol/limits/wire.ts'
import { type ExecExit, type ExecFrame, execExit, execFrame } from '../../protocol/wire/exec.ts'
import type { PeerRun, PeerRunOutput } from '../runs/peer-run.ts'
import type { DetachedRecord, RecordFiles } from './record-file.ts'
import { SPOOL_START, Spool, SpoolIndex, type SpoolPosition, SpoolReader, keptBefore } from './spool.ts'

export interface DetachedRunRecordInit {
  readonly name: string
  readonly record: DetachedRecord
  /** Resolves when the files of a denied run of the same name are removed. */
  readonly replaced?: Promise<void> | undefined
  /** Removes a new run that was denied before it started or waited. Absent for a run whose files exist already. */
  discard?(): Promise<void>
}

/** A detached run in memory and on disk, with everything that its owner can still ask for. */
export class DetachedRunRecord implements PeerRunOutput {
  readonly name: string
  readonly #deps: { readonly clock: Clock; readonly files: RecordFiles; readonly log: Logger }
  readonly #replaced: Promise<void> | undefined
  #record: DetachedRecord
  #spool: Spool | null = null
  /** Content of a file that has no open spool. */
  #place: SpoolPosition
  #index = new SpoolIndex()
  /** Pending while the output of a dead executor is measured. */
  #measuring: Promise<void> | null = null
  /** Monotonic time at which the run is ended. */
  #endsAt: number | null = null
  /** Monotonic time of the end. The wall clock is used only across restarts, so that a clock change does not alter the time of expiry. */
  #overSince: number | null = null
  readonly #watchers = new Set<() => void>()
  /** Serializes writes of the record. Resolves to whether the last one succeeded. */
  #saving: Promise<boolean> = Promise.resolve(true)
  readonly #started = Promise.withResolvers<void>()
  /** Resolves when the run has started, waits for an approval, or was denied. */
  readonly begun = this.#started.promise
  #refused: Uint8Array | null = null
  /** See `DetachedRunRecordInit.discard`, or null once the run is kept in any case. */
  #discard: (() => Promise<void>) | null

  constructor(deps: { clock: Clock; files: RecordFiles; log: Logger }, init: DetachedRunRecordInit) {
    this.name = init.name
    this.#replaced = init.replaced
    this.#discard = init.discard ?? null
    this.#deps = deps
    this.#record = init.record
    const { file_bytes: file, stdout_kept: stdout, stderr_kept: stderr, ended_at_ms } = init.record
    this.#place = { file, stdout, stderr }
    const { clock } = deps
    if (ended_at_ms !== null) this.#overSince = clock.monotonic() - Math.max(0, clock.now() - ended_at_ms)
    if (this.over) this.#started.resolve()
  }

  get record(): DetachedRecord {
    return this.#record
  }

  /** The run has ended or was denied. */
  get over(): boolean {
    return this.#refused !== null || (this.#record.state !== 'waiting' && this.#record.state !== 'running')
  }

  /**
   * Milliseconds since the end, or null for an active run. The monotonic clock counts them, so that a changed wall clock removes no output.
   */
  get overFor(): number | null {
    return this.#overSince === null ? null : this.#deps.clock.monotonic() - this.#overSince
  }

  /** Bytes on disk. While the run goes on, also the output that it may still write. */
  get heldBytes(): number {
    const { written } = this
    return written.file + (this.over ? 0 : this.#record.keep_bytes - keptBefore(written))
  }

  /** Content of the output file. */
  get written(): SpoolPosition {
    return this.#spool?.written ?? this.#place
  }

  /** Encoded Exit of a run that was denied and not kept. */
  get refused(): Uint8Array | null {
    return this.#refused
  }

  get notes(): readonly Uint8Array[] {
    return this.#record.notes
  }

  /** Encoded Exit, or null if the run is lost or goes on. */
  get exit(): Uint8Array | null {
    return this.#refused ?? this.#record.exit
  }

  /** The run was denied while it waited or because its program could not start. */
  get isDenied(): boolean {
    const { state, exit } = this.#record
    return state === 'ended' && (exitOf(exit)?.denial_reason ?? null) !== null
  }

  /** Creates the files. Throws errors of the file system. Then no file is left. */
  async open(run: Pick<PeerRun, 'resume' | 'outputLost'>): Promise<void> {
    const { files, log } = this.#deps
    try {
      await this.#replaced
      await files.prepare()
      this.#spool = await Spool.create(files.outputOf(this.name), {
        onRoom: () => run.resume(),
        onWritten: () => this.#changed(),
        onFailed: (error) => {
          log.error({ request_id: this.#record.request_id, error: errorText(error) }, 'output of a detached run cannot be kept')
          run.outputLost()
        },
      })
      await files.save(this.name, this.#record)
      if (this.#record.state === 'waiting') this.#discard = null
    } catch (error) {
      await this.#spool?.finish().catch(() => undefined)
      this.#spool = null
      await files.remove(this.name)
      throw error
    }
  }

  /** False means to read no more before `onRoom`. */
  push(stream: OutputName, data: Uint8Array): boolean {
    return this.#spool?.push(stream, data) ?? true
  }

  waiting(): void {
    this.#started.resolve()
  }

  /** Records that the program starts. A crash from now on makes the run `lost`. If it returns false, the program must not start. */
  async approved(): Promise<boolean> {
    this.#change({ state: 'running' })
    return this.#saving
  }

  started(lifetimeMs: number): void {
    this.#discard = null
    this.#endsAt = this.#deps.clock.monotonic() + lifetimeMs
    this.#change({ state: 'running' })
    this.#started.resolve()
  }

  note(frame: Uint8Array): void {
    if (this.#record.notes.length >= MAX_WARNINGS_PER_RUN) return
    this.#change({ notes: [...this.#record.notes, frame] })
  }

  /** Ends the run. `exit` is its encoded Exit, or null if absent. */
  async finish(exit: Uint8Array | null): Promise<void> {
    await this.#spool?.finish().catch((error: unknown) => {
      const fields = { request_id: this.#record.request_id, error: errorText(error) }
      this.#deps.log.error(fields, 'the output of a detached run could not be closed')
    })
    if (exit !== null && this.#discard !== null) return this.#refuse(exit, this.#discard)
    const { file, stdout, stderr } = this.written
    const { stdout_bytes_total = 0, stderr_bytes_total = 0 } = exitOf(exit) ?? {}
    const dropped = Math.max(stdout_bytes_total + stderr_bytes_total - stdout - stderr, this.#spool?.dropped ?? 0)
    const place = { file_bytes: file, stdout_kept: stdout, stderr_kept: stderr, dropped }
    this.#change({ state: exit === null ? 'lost' : 'ended', exit, ...this.#ended(), ...place })
    this.#started.resolve()
    await this.#saving
  }

  /** Marks a run of a dead executor as lost. Complete pieces of its output are kept. */
  lose(size: number): void {
    this.#change({ state: 'lost', ...this.#ended() })
    this.#started.resolve()
    this.#measuring = this.#measure(size).finally(() => (this.#measuring = null))
  }

  /** Resolves when the size of the output is known. */
  async measured(): Promise<void> {
    await this.#measuring
  }

  /** Resolves when the record is written. */
  async settled(): Promise<void> {
    await this.#saving
  }

  /** Removes the output and remembers only the ID. If the file cannot be removed, throws the error without a change. */
  async expire(): Promise<void> {
    await this.#deps.files.removeOutput(this.name)
    this.#place = SPOOL_START
    this.#index = new SpoolIndex()
    this.#spool = null
    const nothing = { file_bytes: 0, stdout_kept: 0, stderr_kept: 0, notes: [], exit: null }
    this.#change({ state: 'expired', ...(this.#overSince === null && this.#ended()), ...nothing })
    await this.#saving
  }

  /** Calls back on new output and at the end. Returns a function that stops it. */
  watch(onChange: () => void): () => void {
    this.#watchers.add(onChange)
    return () => void this.#watchers.delete(onChange)
  }

  /** Returns a new reader, which starts at the last indexed position up to `kept` bytes of output. */
  reader(kept: number): SpoolReader {
    const index = this.#spool?.index ?? this.#index
    // A reader that wants only the end starts at the end.
    const place = keptBefore(this.written) <= kept ? this.written : index.before(kept)
    return new SpoolReader(this.#deps.files.outputOf(this.name), { index, place })
  }

  /** State of the run as a frame for its owner. `before` is the output of each stream that an attachment skips. */
  frame(before: Pick<SpoolPosition, 'stdout' | 'stderr'> = SPOOL_START): Extract<ExecFrame, { type: 'detached' }> {
    const { clock } = this.#deps
    const { request_id, state, request_sha256, keep_bytes, dropped } = this.#record
    const left = this.over || this.#endsAt === null ? null : Math.max(0, Math.round(this.#endsAt - clock.monotonic()))
    const { overFor } = this
    const keptFor = overFor === null || state === 'expired' ? null : Math.max(0, Math.round(DETACHED_KEPT_MS - overFor))
    return {
      type: 'detached',
      request_id,
      state,
      request_sha256,
      kept: keptBefore(this.written),
      dropped: Math.max(dropped, this.#spool?.dropped ?? 0),
      keep_bytes,
      lifetime_left_ms: left,
      kept_for_ms: keptFor,
      stdout_before: before.stdout,
      stderr_before: before.stderr,
    }
  }

  /** Discards the run. Its requester receives the Exit and may send the Request again. */
  async #refuse(exit: Uint8Array, discard: () => Promise<void>): Promise<void> {
    await discard()
    this.#refused = exit
    this.#started.resolve()
    this.#changed()
  }

  async #measure(size: number): Promise<void> {
    const { files, log } = this.#deps
    try {
      const reader = new SpoolReader(files.outputOf(this.name), { index: this.#index })
      try {
        this.#place = await reader.measure(size)
      } finally {
        await reader.close()
      }
    } catch (error) {
      log.warn({ request_id: this.#record.request_id, error: errorText(error) }, 'the output of a lost run cannot be read')
      this.#place = SPOOL_START
    }
    const { file, stdout, stderr } = this.#place
    this.#change({ file_bytes: file, stdout_kept: stdout, stderr_kept: stderr })
  }

  #ended(): Pick<DetachedRecord, 'ended_at_ms'> {
    const { clock } = this.#deps
    this.#overSince = clock.monotonic()
    return { ended_at_ms: clock.now() }
  }

  #change(change: Partial<DetachedRecord>): void {
    this.#record = { ...this.#record, ...change }
    this.#saving = this.#saving.then(async () => this.#save())
    this.#changed()
  }

  async #save(): Promise<boolean> {
    const { files, log } = this.#deps
    try {
      await files.save(this.name, this.#record)
      return true
    } catch (error) {
      log.error({ request_id: this.#record.request_id, error: errorText(error) }, 'the record of a detached run cannot be written')
      return false
    }
  }

  #changed(): void {
    for (const onChange of this.#watchers) onChange()
  }
}

const exitOf = (frame: Uint8Array | null): ExecExit | null => {
  const decoded = frame && execFrame.decode(frame)
  return decoded?.type === 'exit' ? execExit.decode(decoded.body) : null
}
