import { AppError, errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { LocalOutcome } from '../../executor-api/local.ts'
import type { HttpRefusedEvent, LocalEvent, LocalRequestEvent, LocalRunKey, RefusedEvent } from '../../journal/events.ts'
import type { Journal } from '../../journal/journal.ts'
import { type JournalledRun, JournalledRuns } from '../../journal/past-runs.ts'
import type { RunningProcess } from '../../process/running-process.ts'
import type { ProgramStart } from '../../process/spawn.ts'
import type { RunReporter } from '../../protocol/events/run-reporter.ts'
import { MAX_TEXT } from '../../protocol/limits/wire.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { RunRecorder } from '../runs/execution.ts'
import { type Warning, amountsOf } from '../runs/frames.ts'
import { type ExitFacts, endOf, neverRan } from '../runs/run-facts.ts'
import type { MeshProgram } from './mesh-program.ts'

/** A program on this machine or on a target. */
export type LocalProgram = RunningProcess | MeshProgram

/** Only the target's audit log has the hashes of the output. */
const UNHASHED = { stdout_sha256: null, stderr_sha256: null }

export interface LocalReportInit {
  readonly key: LocalRunKey
  readonly request: Omit<LocalRequestEvent, 'event' | keyof LocalRunKey>
  /** Null for a run on this machine. */
  readonly target: MeshProgram | null
  /** Null without a listener. */
  readonly reporter: RunReporter | null
  /** Called when the program runs, so that resources of the start can be released. */
  onStarted(): void
  /** Called when output is dropped. */
  onCapHit(): void
}

/** Logs a run of a local client and builds its outcome. */
export class LocalReport implements RunRecorder<LocalProgram, LocalOutcome> {
  readonly #journal: LocalJournal
  readonly #init: LocalReportInit

  constructor(deps: { journal: LocalJournal }, init: LocalReportInit) {
    this.#journal = deps.journal
    this.#init = init
  }

  async requested(): Promise<boolean> {
    try {
      await this.#journal.record({ event: 'request', ...this.#init.key, ...this.#init.request })
      return true
    } catch (error) {
      if (isAppError(error, 'journal_unavailable')) return false
      throw error
    }
  }

  allowed(): void {}

  started(program: LocalProgram): void {
    this.#init.onStarted()
    this.#init.reporter?.started()
    if ('pid' in program) this.#noteStart(program)
  }

  wrote(data: Uint8Array): void {
    this.#init.reporter?.output(data)
  }

  warned(warning: Warning): void {
    const { kind } = warning
    if (kind === 'stdout_cap_hit' || kind === 'stderr_cap_hit') this.#init.onCapHit()
    void this.#journal.note({ event: 'warning', ...this.#init.key, kind, ...amountsOf(warning) })
  }

  async denied(reason: DenialReason, detail: string | null, ran: ProgramStart | null = null): Promise<LocalOutcome> {
    if (ran !== null) this.#noteStart(ran)
    await this.#noteRefusal(reason, detail ?? reason)
    this.#init.reporter?.denied(reason)
    return outcomeOf(neverRan(reason), { detail })
  }

  /** The target refused the run, or could not be asked. */
  async refused(error: unknown): Promise<void> {
    await this.#noteRefusal(error instanceof AppError ? error.code : 'internal', errorText(error))
    this.#init.reporter?.denied(reasonOf(error))
  }

  /** The run failed with an internal error. */
  lost(): void {
    this.#init.reporter?.lost()
  }

  async ended(facts: ExitFacts): Promise<LocalOutcome> {
    const { key, target, reporter } = this.#init
    await this.#journal.note({ event: 'exit', ...key, ...endOf(facts), ...(target !== null && UNHASHED) })
    const lost = target?.lost ?? null
    reporter?.finished({ ...facts, incomplete: lost !== null })
    return outcomeOf(facts, { lost })
  }

  settled(): void {}

  #noteStart({ pid, containment }: ProgramStart): void {
    void this.#journal.note({ event: 'started', ...this.#init.key, pid, containment })
  }

  async #noteRefusal(code: string, detail: string): Promise<void> {
    const { key, request } = this.#init
    const method = request.tool?.operation ?? 'exec.start'
    await this.#journal.refused({ event: 'refused', ...key, method, argv: request.argv, code, detail })
  }
}

/** The reason why a run did not start, as a code. */
export const reasonOf = (error: unknown): string => {
  if (!(error instanceof AppError)) return 'internal'
  const { reason } = error.data
  return typeof reason === 'string' ? reason : error.code
}

const cut = (text: string | null): string | null => text?.slice(0, MAX_TEXT / 4) ?? null

const outcomeOf = (
  { stdout_sha256: _out, stderr_sha256: _err, ...facts }: ExitFacts,
  { detail = null, lost = null }: { readonly detail?: string | null; readonly lost?: string | null },
): LocalOutcome => ({ ...facts, detail: cut(detail), lost: cut(lost) })

/** The audit log of local clients. */
export class LocalJournal {
  readonly #deps: { readonly journal: Journal | null; readonly log: Logger }
  readonly #recalled: JournalledRuns | null

  /** `journal` is null if the configuration wants no audit log. */
  constructor(deps: { journal: Journal | null; log: Logger }) {
    this.#deps = deps
    this.#recalled = deps.journal && new JournalledRuns({ path: deps.journal.path })
  }

  /**
   * Resolves when the line is written, and synced unless it is a note. Resolves at once without an audit log. Throws `journal_unavailable`.
   * Then the logged action must not happen.
   */
  async record(event: LocalEvent): Promise<void> {
    await this.#deps.journal?.append(event)
  }

  /**
   * Finds the run that was started with this key. Returns null for an unknown key or without an audit log. Throws `journal_unavailable` if
   * the log cannot be read.
   */
  async recall(keySha256: string): Promise<JournalledRun | null> {
    try {
      return (await this.#recalled?.find(keySha256)) ?? null
    } catch (error) {
      throw new AppError('journal_unavailable', `cannot read whether the key was used: ${errorText(error)}`, { cause: error })
    }
  }

  /** Like `record`, for an event that has already happened, so an error is only logged. */
  async note(event: LocalEvent): Promise<void> {
    return this.#logged(event, this.record(event))
  }

  /** Like `note`, for a refusal. The audit log only counts refusals above the limit of their source. */
  async refused(event: RefusedEvent | HttpRefusedEvent): Promise<void> {
    return this.#logged(event, this.#deps.journal?.refuse(event))
  }

  async #logged(event: LocalEvent, writing: Promise<void> | undefined): Promise<void> {
    try {
      await writing
    } catch (error) {
      const run = 'request_id' in event ? { request_id: event.request_id } : {}
      this.#deps.log.error({ event: event.event, ...run, error: errorText(error) }, 'a line of the journal could not be written')
    }
  }
}
