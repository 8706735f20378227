import { AppError, errorText, isAppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { plainText } from '../base/visible-text.ts'
import type { HttpRefused } from '../executor-api/messages.ts'
import type { AuthorityEvent } from '../journal/events.ts'
import type { Journal } from '../journal/journal.ts'
import type { ExecCounters } from './exec-counters.ts'

export interface AuthorityJournalDeps {
  readonly counters: ExecCounters
  /** The audit log; if the ACL names none, the request log. */
  readonly journal: Journal
  readonly log: Logger
}

type Change = Pick<AuthorityEvent, 'operation' | 'agent' | 'machine' | 'level' | 'request_id'> & { readonly detail?: string }

const NO_PEER = { agent: null, machine: null } as const

/** Logs trust changes, runs that an operator ended, refused operator proofs and refused REST calls. */
export class AuthorityJournal {
  readonly #deps: AuthorityJournalDeps

  constructor(deps: AuthorityJournalDeps) {
    this.#deps = deps
  }

  /**
   * Resolves when the line is on disk. Throws `journal_unavailable` for a change that widens trust, which must then not happen. A change
   * that narrows trust happens in any case.
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

  /** Logs a change that was requested without a valid operator proof, or by a peer that may not have it. */
  async refused(operation: string, error: unknown, peer: Pick<AuthorityEvent, 'agent' | 'machine'> = NO_PEER): Promise<void> {
    if (!isAppError(error)) return
    const { code, message } = error
    const { agent, machine } = peer
    const line = { event: 'authority', operation, agent, machine, level: null, code, detail: plainText(message) } as const
    await this.#deps.journal.refuse(line).catch((failure: unknown) => this.#failed(failure))
  }

  /** Logs a refused REST call that the network process reported. */
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
