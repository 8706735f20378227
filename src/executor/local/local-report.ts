import type { LocalRunKey } from '../../audit/events.ts'
import { isAppError } from '../../base/errors.ts'
import { pieceHashes } from '../../identity/piece-hashes.ts'
import type { Permit } from '../../policy/permit.ts'
import { MAX_TEXT } from '../../protocol/limits.ts'
import type { DenialReason, WarningKind } from '../../protocol/reasons.ts'
import { endOf, evidenceOf, neverRan, type ExitFacts } from '../runs/exit-writer.ts'
import { localFrame } from '../port/local-messages.ts'
import type { ProgramStart, RunReport } from '../runs/report.ts'
import type { LocalJournal } from './local-journal.ts'

export interface LocalReportInit {
  readonly key: LocalRunKey
  readonly argv: readonly string[]
  /** Names of the variables that the caller set. */
  readonly env: readonly string[]
  /** What goes in before anything is typed. */
  readonly stdin: Uint8Array
  /** It runs: what was held for its start is not needed any more. */
  onStarted(): void
  /** Output was dropped. */
  onCapHit(): void
}

/** What is said of a run of this host's own doors: in the journal, and in its last frame. */
export class LocalReport implements RunReport {
  readonly #journal: LocalJournal
  readonly #init: LocalReportInit

  constructor(components: { journal: LocalJournal }, init: LocalReportInit) {
    this.#journal = components.journal
    this.#init = init
  }

  async requested(permit: Permit): Promise<boolean> {
    const { key, argv, env, stdin } = this.#init
    const pieces = stdin.length === 0 ? [] : pieceHashes(stdin)
    const facts = {
      argv,
      stdin_bytes: stdin.length,
      cwd: permit.cwd,
      env,
      target: null,
      request_sha256: null,
      ...evidenceOf(permit, pieces),
    }
    try {
      await this.#journal.record({ event: 'request', ...key, ...facts })
      return true
    } catch (error) {
      if (isAppError(error, 'journal_unavailable')) return false
      throw error
    }
  }

  allowed(): void {}

  started({ pid, containment }: Parameters<RunReport['started']>[0]): void {
    this.#init.onStarted()
    void this.#journal.note({ event: 'started', ...this.#init.key, pid, containment })
  }

  warned(kind: WarningKind, bytes: number | null): void {
    if (kind === 'stdout_cap_hit' || kind === 'stderr_cap_hit') this.#init.onCapHit()
    void this.#journal.note({ event: 'warning', ...this.#init.key, kind, bytes })
  }

  async denied(reason: DenialReason, detail: string | null, ran: ProgramStart | null = null): Promise<Uint8Array> {
    if (ran !== null) void this.#journal.note({ event: 'started', ...this.#init.key, ...ran })
    await this.#journal.refused({
      event: 'refused',
      ...this.#init.key,
      method: 'exec.start',
      argv: this.#init.argv,
      code: reason,
      detail: detail ?? reason,
    })
    return this.#outcome(neverRan(reason), detail)
  }

  async ended(facts: ExitFacts): Promise<Uint8Array> {
    await this.#journal.note({ event: 'exit', ...this.#init.key, ...endOf(facts) })
    return this.#outcome(facts, null)
  }

  settled(): void {}

  #outcome({ stdout_sha256: _out, stderr_sha256: _err, ...facts }: ExitFacts, detail: string | null): Uint8Array {
    const { request_id } = this.#init.key
    return localFrame.encode({ type: 'outcome', request_id, ...facts, detail: detail?.slice(0, MAX_TEXT / 4) ?? null, lost: null })
  }
}
