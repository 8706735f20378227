import { AppError, errorText, isAppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { plainText } from '../base/visible-text.ts'
import type { HttpRefused } from '../executor-api/messages.ts'
import type { AuthorityEvent } from '../journal/events.ts'
import type { Journal } from '../journal/journal.ts'
import type { ExecCounters } from './exec-counters.ts'

export interface AuthorityJournalDeps {
  readonly counters: ExecCounters
  /** Of what runs here, or, where nothing may, of what is asked of others. */
  readonly journal: Journal
  readonly log: Logger
}

type Change = Pick<AuthorityEvent, 'operation' | 'agent' | 'machine' | 'level' | 'request_id'> & { readonly detail?: string }

/** Journals changes of trust, runs that an operator ended, refused proofs of operators, and refused calls of the REST API. */
export class AuthorityJournal {
  readonly #deps: AuthorityJournalDeps

  constructor(deps: AuthorityJournalDeps) {
    this.#deps = deps
  }

  /**
   * Settles when the line is on the disk. Throws `journal_unavailable` for what widens: then it must not be done. What
   * takes trust away is done in any case.
   */
  async announce(change: Change, { widens }: { widens: boolean }): Promise<void> {
    const { journal } = this.#deps
    try {
      await journal.append({ event: 'authority', ...change, code: null, detail: change.detail ?? null })
    } catch (error) {
      this.#failed(error)
      if (!widens) return
      throw new AppError('journal_unavailable', `nothing was changed, because ${journal.path} cannot be written (${errorText(error)})`, {
        cause: error,
      })
    }
  }

  /** A change that was asked for without a valid proof of an operator. */
  async refused(operation: string, error: unknown): Promise<void> {
    if (!isAppError(error)) return
    const { code, message } = error
    const line = { event: 'authority', operation, agent: null, machine: null, level: null, code, detail: message } as const
    await this.#deps.journal.refuse(line).catch((failure: unknown) => this.#failed(failure))
  }

  /** A call of the REST API, as the network's half tells of it. */
  async httpRefused({ code, method, path, host, origin, remote }: HttpRefused): Promise<void> {
    const shown = (text: string | null): string | null => text && plainText(text)
    const texts = { method: plainText(method), path: plainText(path), host: shown(host), origin: shown(origin), remote: shown(remote) }
    const line = { event: 'http_refused', code, ...texts, detail: null } as const
    await this.#deps.journal.refuse(line).catch((failure: unknown) => this.#failed(failure))
  }

  #failed(error: unknown): void {
    this.#deps.counters.count('audit_write_failures')
    this.#deps.log.error({ error: errorText(error) }, 'a line of the journal could not be written')
  }
}
