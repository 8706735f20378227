import { AppError, errorCodeOf } from '../../base/errors.ts'
import type { LocalOutcome, LocalRun } from '../../executor/port/local-executor.ts'
import { isTable } from '../../protocol/field-checks.ts'
import type { WarningKind } from '../../protocol/reasons.ts'
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
const INERT: Pick<LocalRun, 'input' | 'signal' | 'cancel' | 'resize' | 'hangUp' | 'over' | 'caps'> = {
  input: () => 0,
  signal: () => false,
  cancel: () => undefined,
  resize: () => undefined,
  hangUp: () => undefined,
  over: false,
  caps: { timeout_ms: 0, max_output_bytes: 0 },
}

interface Played {
  readonly run: ToolRun
  /** Null: it was not accepted yet. */
  end: ((outcome: LocalOutcome | null) => void) | null
}

type OfRun<E extends RunRecordEvent['event']> = Extract<RecordLine, { event: E }>

/** The first field in which two values differ; null: in none. */
export const firstDifference = (recorded: unknown, replayed: unknown, field = ''): Omit<Difference, 'run'> | null => {
  if (!isTable(recorded) || !isTable(replayed))
    return JSON.stringify(recorded) === JSON.stringify(replayed) ? null : { field, recorded, replayed }
  for (const name of new Set([...Object.keys(replayed), ...Object.keys(recorded)])) {
    const found = firstDifference(recorded[name], replayed[name], field === '' ? name : `${field}.${name}`)
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
  #results = 0
  #count = 0

  /** Results that were compared. */
  get results(): number {
    return this.#results
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

  /** Null: nothing differs. */
  async take(line: RecordLine): Promise<Difference | null> {
    if (this.#begun === (line.event === 'record'))
      throw misplaced(this.#begun ? 'a record begins once' : 'a record begins with its "record"')
    switch (line.event) {
      case 'record':
        if (line.version !== RECORD_VERSION) throw misplaced(`version ${line.version} of records is not known here`)
        this.#begun = true
        return null
      case 'incomplete':
        this.#complete = false
        return null
      case 'request':
        this.#ask(line)
        return null
      case 'result':
        this.#results += 1
        return this.#compare(line)
      default:
        await this.#tell(line)
        return null
    }
  }

  #ask({ run: id, request, asked_at }: OfRun<'request'>): void {
    if (this.#runs.has(id)) throw misplaced('this run was asked for already')
    const { operation, command, args, cwd, target, timeout_ms } = request
    const asked = { operation, command, args, cwd, target, timeout_ms, env: {}, stdin: new Uint8Array(0) }
    this.#runs.set(id, { run: new ToolRun({ id, request: asked, askedAt: asked_at }), end: null })
    this.#count += 1
    this.#forget()
  }

  async #tell(line: OfRun<'started' | 'stdout' | 'stderr' | 'warning' | 'ended' | 'refused'>): Promise<void> {
    const played = this.#played(line.run)
    if (played.run.over) throw misplaced('this run has ended')
    switch (line.event) {
      case 'started':
        if (played.end !== null) throw misplaced('this run has begun already')
        return start(played, line)
      case 'refused':
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

  #compare({ run, view, result, text_sha256 }: OfRun<'result'>): Difference | null {
    const replayed = this.#played(run).run.result(view)
    const found = firstDifference(result, replayed) ?? firstDifference({ text_sha256 }, { text_sha256: textHash(replayed) })
    return found === null ? null : { run, ...found }
  }

  #played(id: string): Played {
    const played = this.#runs.get(id)
    if (played === undefined) throw misplaced('this run was not asked for, or was over long ago')
    return played
  }

  /** As a server forgets runs: of these there are no more results. */
  #forget(): void {
    const ended = [...this.#runs].filter(([, { run }]) => run.over)
    for (const [id] of ended.slice(0, Math.max(0, ended.length - MAX_ENDED))) this.#runs.delete(id)
    if (this.#runs.size > MAX_ENDED + MAX_UNDER_WAY) throw misplaced('more runs are under way than a server has')
  }
}

const misplaced = (message: string): AppError => new AppError('bad_request', message)

const start = (played: Played, { started_at: startedAt, cwd }: OfRun<'started'>): void => {
  const ended = new Promise<LocalOutcome | null>((resolve) => (played.end = resolve))
  void played.run.follow({ ...INERT, startedAt, cwd, ended })
}

const refuse = (run: ToolRun, { code, message, data }: OfRun<'refused'>): void => {
  if (code !== null) return run.refuse(new AppError(errorCodeOf(code), message, { data: { ...data } }))
  try {
    run.refuse(new Error(message))
  } catch {
    // It hands on what is a mistake of ours, and so it did when it was recorded.
  }
}
