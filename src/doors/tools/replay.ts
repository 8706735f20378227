import { AppError, errorCodeOf } from '../../base/errors.ts'
import type { LocalOutcome, LocalRun } from '../../executor/port/local-executor.ts'
import { isTable, type Fields } from '../../protocol/field-checks.ts'
import type { WarningKind } from '../../protocol/reasons.ts'
import { MAX_KEYS } from '../../protocol/tool-limits.ts'
import { RECORD_VERSION, type RecordLine, type RunRecordEvent } from '../../protocol/tool-record.ts'
import { textHash } from './run-recorder.ts'
import { ToolRun } from './tool-run.ts'
import { MAX_ENDED, MAX_UNDER_WAY } from './tool-runs.ts'

/** The first field of a result that is not what follows from what was recorded. */
export interface Difference {
  readonly run: string
  /** Such as `launch_error.kind`. */
  readonly field: string
  readonly recorded: unknown
  readonly replayed: unknown
}

/** What does nothing: nobody asks anything of a run that is over. */
const INERT: Pick<LocalRun, 'input' | 'signal' | 'cancel' | 'resize' | 'hangUp' | 'over'> = {
  input: () => 0,
  signal: () => false,
  cancel: () => undefined,
  resize: () => undefined,
  hangUp: () => undefined,
  over: false,
}

interface Played {
  readonly run: ToolRun
  /** Null: it was not accepted yet. */
  end: ((outcome: LocalOutcome | null) => void) | null
  /** What it had written, where that was dropped a short time ago. */
  dropped: ToolRun['text'] | null
}

/** Runs without their text that may still be asked about; those of keys are fewer. */
const MAX_DROPPED = 4 * MAX_KEYS

type OfRun<E extends RunRecordEvent['event']> = Extract<RecordLine, { event: E }>

const ownOf = (table: Fields, name: string): unknown => (Object.hasOwn(table, name) ? table[name] : undefined)

/** The first field in which two values differ; null: in none. */
export const firstDifference = (recorded: unknown, replayed: unknown, field = ''): Omit<Difference, 'run'> | null => {
  if (!isTable(recorded) || !isTable(replayed))
    return JSON.stringify(recorded) === JSON.stringify(replayed) ? null : { field, recorded, replayed }
  for (const name of new Set([...Object.keys(replayed), ...Object.keys(recorded)])) {
    const found = firstDifference(ownOf(recorded, name), ownOf(replayed, name), field === '' ? name : `${field}.${name}`)
    if (found !== null) return found
  }
  return null
}

/**
 * Gives recorded events to the very code that makes results of events, and compares what comes of it with the results that were
 * recorded. Every method throws `bad_request` for an event that cannot stand where it stands.
 */
export class Replay {
  readonly #runs = new Map<string, Played>()
  #begun = false
  #complete = true
  #finished = false
  #results = 0
  #unchecked = 0
  #count = 0
  /** The one that was dropped last stands last. */
  readonly #dropped = new Set<string>()
  #hasForgotten = false

  /** Results that were compared. */
  get results(): number {
    return this.#results
  }

  /** Results of runs that were over long before, and of which too little is known by now. */
  get unchecked(): number {
    return this.#unchecked
  }

  get runs(): number {
    return this.#count
  }

  /** Runs of which no end was recorded: their server was killed, or still runs them. */
  get interrupted(): number {
    return [...this.#runs.values()].filter(({ run }) => !run.over).length
  }

  /** False: the record says itself that it has not everything. */
  get complete(): boolean {
    return this.#complete
  }

  /** False: its last line was not read. */
  get finished(): boolean {
    return this.#finished
  }

  /** Null: nothing differs. */
  async take(line: RecordLine): Promise<Difference | null> {
    if (this.#begun === (line.event === 'record'))
      throw misplaced(this.#begun ? 'a record begins once' : 'a record begins with its "record"')
    if (this.#finished) throw misplaced('the record ended before')
    if (!this.#complete && line.event !== 'end') throw misplaced('nothing but its end follows an "incomplete"')
    switch (line.event) {
      case 'record':
        if (line.version !== RECORD_VERSION) throw misplaced(`version ${line.version} of records is not known here`)
        this.#begun = true
        return null
      case 'incomplete':
        this.#complete = false
        return null
      case 'end':
        this.#finished = true
        return null
      case 'request':
        this.#ask(line)
        return null
      case 'result':
      case 'part':
        return this.#compare(line)
      case 'text_dropped':
        this.#drop(line.run)
        return null
      default:
        await this.#tell(line)
        return null
    }
  }

  #ask({ run: id, request, asked_at }: OfRun<'request'>): void {
    if (this.#runs.has(id)) throw misplaced('this run was asked for already')
    const asked = { ...request, env: {}, stdin: new Uint8Array(0) }
    this.#runs.set(id, { run: new ToolRun({ id, request: asked, askedAt: asked_at }), end: null, dropped: null })
    this.#count += 1
    if (this.#runs.size > MAX_DROPPED + MAX_ENDED + MAX_UNDER_WAY) throw misplaced('more runs are under way than a server has')
  }

  async #tell(line: OfRun<'started' | 'stdout' | 'stderr' | 'warning' | 'ended' | 'refused'>): Promise<void> {
    const played = this.#played(line.run)
    if (played.run.over) throw misplaced('this run has ended')
    switch (line.event) {
      case 'started':
        if (played.end !== null) throw misplaced('this run has begun already')
        return start(played, line)
      case 'refused':
        if (played.end !== null) throw misplaced('this run has begun already')
        return refuse(played.run, line)
      case 'ended':
        if (played.end === null) throw misplaced('this run has not begun')
        played.end(line.outcome as LocalOutcome | null)
        return played.run.ended
      case 'warning':
        return played.run.event({ type: 'warning', kind: line.kind as WarningKind })
      default:
        return played.run.event({ type: line.event, data: Buffer.from(line.data_b64, 'base64') })
    }
  }

  #compare(line: OfRun<'result' | 'part'>): Difference | null {
    if (this.#hasForgotten && !this.#runs.has(line.run)) return this.#leave()
    const { run, dropped } = this.#played(line.run)
    if (line.event === 'part') {
      this.#results += 1
      return ofRun(line.run, firstDifference(line.part, run.part(line.stream, line.from, line.max)))
    }
    const { view, result, text_sha256, of_dropped } = line
    if (of_dropped && !this.#dropped.has(line.run)) throw misplaced('the text of this run was not dropped')
    if (of_dropped && dropped === null) return this.#leave()
    this.#results += 1
    const replayed = run.result(view, of_dropped && dropped !== null ? dropped : run.text)
    const found = firstDifference(result, replayed) ?? firstDifference({ text_sha256 }, { text_sha256: textHash(replayed) })
    return ofRun(line.run, found)
  }

  /** Nothing is known any more by which it could be compared. */
  #leave(): null {
    this.#unchecked += 1
    return null
  }

  #played(id: string): Played {
    const played = this.#runs.get(id)
    if (played === undefined) throw misplaced('this run was not asked for, or was over long ago')
    return played
  }

  /** As its server does: the text of what can no longer be asked for. */
  #drop(id: string): void {
    const played = this.#played(id)
    if (!played.run.over) throw misplaced('this run has not ended')
    played.dropped = { ...played.run.text }
    played.run.dropText()
    this.#dropped.delete(id)
    this.#dropped.add(id)
    const ids = [...this.#dropped]
    const older = this.#runs.get(ids.at(-1 - MAX_ENDED) ?? '')
    if (older !== undefined) older.dropped = null
    if (ids.length <= MAX_DROPPED) return
    this.#dropped.delete(ids[0]!)
    this.#runs.delete(ids[0]!)
    this.#hasForgotten = true
  }
}

const ofRun = (run: string, found: Omit<Difference, 'run'> | null): Difference | null => (found === null ? null : { run, ...found })

const misplaced = (message: string): AppError => new AppError('bad_request', message)

const start = (played: Played, { started_at: startedAt, cwd, timeout_ms }: OfRun<'started'>): void => {
  const ended = new Promise<LocalOutcome | null>((resolve) => (played.end = resolve))
  void played.run.follow({ ...INERT, startedAt, cwd, caps: { timeout_ms }, ended })
}

const refuse = (run: ToolRun, { code, message, data }: OfRun<'refused'>): void => {
  if (code !== null) return run.refuse(new AppError(errorCodeOf(code), message, { data: { ...data } }))
  try {
    run.refuse(new Error(message))
  } catch {
    // It hands on what is a mistake of ours, and so it did when it was recorded.
  }
}
