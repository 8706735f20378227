import { BoundedMap } from '../../base/bounded-collections.ts'
import { AppError, errorCodeOf } from '../../base/errors.ts'
import type { LocalOutcome } from '../../executor-api/local.ts'
import { type Fields, isTable } from '../../protocol/json-table.ts'
import { MAX_KEYS } from '../../protocol/limits/tools.ts'
import type { WarningKind } from '../../protocol/reasons.ts'
import { RECORD_VERSION, type RecordLine, type RunRecordEvent } from '../../protocol/tool-record.ts'
import { textHash } from './tool-run-recorder.ts'
import { INERT, ToolRun } from './tool-run.ts'
import { MAX_ENDED, MAX_UNDER_WAY } from './tool-runs.ts'

/** The first field whose replayed value differs from the recorded one. */
export interface Difference {
  readonly run: string
  /** For example `launch_error.kind`. */
  readonly field: string
  readonly recorded: unknown
  readonly replayed: unknown
}

/** Maximum number of runs without text that can still be queried; keys refer to fewer. */
const MAX_DROPPED = 4 * MAX_KEYS

type OfRun<E extends RunRecordEvent['event']> = Extract<RecordLine, { event: E }>

const ownOf = (table: Fields, name: string): unknown => (Object.hasOwn(table, name) ? table[name] : undefined)

/** The first field in which two values differ, or null. */
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
 * Feeds recorded events to the code that makes results, and compares its results with the recorded ones. Every method throws `bad_request`
 * for an event that is out of order.
 */
export class Replay {
  /** Runs whose output is retained. */
  readonly #runs = new Map<string, ToolRun>()
  /** Resolves the end of accepted runs that have not ended. */
  readonly #ends = new Map<string, (outcome: LocalOutcome | null) => void>()
  readonly #dropped = new BoundedMap<string, ToolRun>({ max: MAX_DROPPED })
  /** Text that was dropped recently, by run. */
  readonly #droppedText = new BoundedMap<string, ToolRun['text']>({ max: MAX_ENDED })
  #started = false
  #complete = true
  #finished = false
  #results = 0
  #unchecked = 0
  #count = 0

  get results(): number {
    return this.#results
  }

  /** Number of results that could not be compared, because too little is known of their runs. */
  get unchecked(): number {
    return this.#unchecked
  }

  get runs(): number {
    return this.#count
  }

  /** Number of runs without a recorded end: the server was killed or still runs them. */
  get interrupted(): number {
    return [...this.#runs.values()].filter(({ over }) => !over).length
  }

  /** False if the record is marked as incomplete. */
  get complete(): boolean {
    return this.#complete
  }

  /** False if the last line was not read. */
  get finished(): boolean {
    return this.#finished
  }

  /** Null means no difference. */
  async take(line: RecordLine): Promise<Difference | null> {
    if (this.#started === (line.event === 'record'))
      throw misplaced(this.#started ? 'a second "record" line' : 'the first line is not a "record"')
    if (this.#finished) throw misplaced('a line after the end of the record')
    if (!this.#complete && line.event !== 'end') throw misplaced('only "end" may follow "incomplete"')
    switch (line.event) {
      case 'record':
        if (line.version !== RECORD_VERSION) throw misplaced(`this release cannot read version ${line.version} of records`)
        this.#started = true
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
        await this.#emit(line)
        return null
    }
  }

  #ask({ run: id, request, asked_at }: OfRun<'request'>): void {
    if (this.#runs.has(id) || this.#dropped.has(id)) throw misplaced('this run was requested already')
    const asked = { ...request, env: {}, stdin: new Uint8Array(0) }
    this.#runs.set(id, new ToolRun({ id, request: asked, askedAt: asked_at }))
    this.#count += 1
    if (this.#runs.size > MAX_ENDED + MAX_UNDER_WAY) throw misplaced('more runs are active than a server allows')
  }

  async #emit(line: OfRun<'waiting' | 'started' | 'stdout' | 'stderr' | 'warning' | 'ended' | 'refused'>): Promise<void> {
    const run = this.#known(line.run)
    if (run.over) throw misplaced('this run has ended')
    const end = this.#ends.get(line.run)
    switch (line.event) {
      case 'waiting':
        if (end !== undefined) throw misplaced('this run has already started')
        return run.waiting({ question_id: line.question_id, expires_at_ms: line.expires_at_ms })
      case 'started':
        if (end !== undefined) throw misplaced('this run has already started')
        return this.#start(run, line)
      case 'refused':
        if (end !== undefined) throw misplaced('this run has already started')
        return refuse(run, line)
      case 'ended':
        if (end === undefined) throw misplaced('this run has not started')
        this.#ends.delete(line.run)
        end(line.outcome as LocalOutcome | null)
        return run.ended
      case 'warning':
        return run.event({ type: 'warning', kind: line.kind as WarningKind, amount: line.amount ?? null })
      default:
        return run.event({ type: line.event, data: Buffer.from(line.data_b64, 'base64') })
    }
  }

  #start(run: ToolRun, { started_at: startedAt, cwd, timeout_ms, ran_on: ranOn, cuts }: OfRun<'started'>): void {
    const ended = new Promise<LocalOutcome | null>((resolve) => this.#ends.set(run.id, resolve))
    void run.follow({ ...INERT, startedAt, cwd, caps: { timeout_ms }, ranOn: ranOn ?? null, cuts: cuts ?? [], ended })
  }

  #compare(line: OfRun<'result' | 'part'>): Difference | null {
    const hasForgotten = this.#count > this.#runs.size + this.#dropped.size
    if (hasForgotten && !this.#runs.has(line.run) && !this.#dropped.has(line.run)) return this.#leave()
    const run = this.#known(line.run)
    if (line.event === 'part') {
      this.#results += 1
      return ofRun(line.run, firstDifference(line.part, run.part(line.stream, line.from, line.max)))
    }
    const { view, result, text_sha256, of_dropped } = line
    if (of_dropped && !this.#dropped.has(line.run)) throw misplaced('the text of this run was not dropped')
    const text = of_dropped ? this.#droppedText.get(line.run) : run.text
    if (text === undefined) return this.#leave()
    this.#results += 1
    const replayed = run.result(view, text)
    const found = firstDifference(result, replayed) ?? firstDifference({ text_sha256 }, { text_sha256: textHash(replayed) })
    return ofRun(line.run, found)
  }

  /** Counts a result that cannot be compared. */
  #leave(): null {
    this.#unchecked += 1
    return null
  }

  #known(id: string): ToolRun {
    const run = this.#runs.get(id) ?? this.#dropped.get(id)
    if (run === undefined) throw misplaced('this run was not requested, or ended long ago')
    return run
  }

  /** Drops the text of a run, as the server did. */
  #drop(id: string): void {
    const run = this.#known(id)
    if (!run.over) throw misplaced('this run has not ended')
    this.#droppedText.set(id, { ...run.text })
    run.dropText()
    this.#runs.delete(id)
    this.#dropped.set(id, run)
  }
}

const ofRun = (run: string, found: Omit<Difference, 'run'> | null): Difference | null => (found === null ? null : { run, ...found })

const misplaced = (message: string): AppError => new AppError('bad_request', message)

const refuse = (run: ToolRun, { code, message, data }: OfRun<'refused'>): void => {
  if (code !== null) return run.refuse(new AppError(errorCodeOf(code), message, { data: { ...data } }))
  try {
    run.refuse(new Error(message))
  } catch {
    // `refuse` rethrows internal errors, as it did during the recording.
  }
}
