import { AppError } from '../base/errors.ts'
import { together } from '../policy/modes.ts'
import type { ModeOverride, RowSettings, SessionModes } from '../protocol/desk/messages.ts'
import { overrideText } from '../protocol/desk/mode-command.ts'
import { MAX_OVERRIDES } from '../protocol/limits/approvals.ts'
import { type Store, withSaved } from './store-format.ts'
import type { DeskServices } from './services.ts'

type DeskModesDeps = Pick<DeskServices, 'clock'> & {
  readonly store: Pick<DeskServices['store'], 'read' | 'change'>
  readonly journal: Pick<DeskServices['journal'], 'changed'>
}

/** Throws `approval_unavailable` if release 0.2 saved modes for this agent: they may have narrowed it, and they no longer count. */
export const checkOldModes = ({ modes = {} }: Pick<Store, 'modes'>, agent: string | null): void => {
  const old = agent !== null && Object.hasOwn(modes, agent) ? modes[agent] : undefined
  if (old === undefined) return
  throw new AppError(
    'approval_unavailable',
    `an earlier release saved modes for ${agent} (${overrideText(old)}); they no longer count, and ${agent} may run nothing until you save them again or remove them: x0x approvals list names the command`,
  )
}

/** Modes that approvers set for sessions; they end with this process. Saved modes are in the agent's row of the store. */
export class DeskModes {
  readonly #deps: DeskModesDeps
  readonly #sessions = new Map<string, SessionModes>()

  constructor(deps: DeskModesDeps) {
    this.#deps = deps
  }

  /** Modes of all sessions, the latest last. */
  get all(): readonly SessionModes[] {
    return [...this.#sessions.values()]
  }

  ofSession(session: string | null): ModeOverride | null {
    return session === null ? null : (this.#sessions.get(session)?.override ?? null)
  }

  /** Modes of the session, and for each setting that it lacks, of all sessions of the agent. */
  together(session: string | null, agent: string | null): ModeOverride | null {
    return together(this.ofSession(session), this.ofSession(agent))
  }

  /** As `together`, for an engine. Throws as `ApprovalStore.read` and `checkOldModes`. */
  async of(session: string | null, agent: string | null): Promise<ModeOverride | null> {
    checkOldModes(await this.#deps.store.read(), agent)
    return this.together(session, agent)
  }

  /**
   * Null restores the configured modes. Throws `journal_unavailable`, and `resource_limit` instead of forgetting other modes, which may be
   * narrower.
   */
  async set(session: string, override: ModeOverride | null, by: string): Promise<void> {
    const { clock, journal } = this.#deps
    if (override !== null && !this.#sessions.has(session) && this.#sessions.size >= MAX_OVERRIDES)
      throw new AppError('resource_limit', `modes of ${MAX_OVERRIDES} sessions are set: remove some (x0x exec-mode list, off --session)`)
    await journal.changed({ change: 'session_modes', by, agent: null, detail: `${session} ${JSON.stringify(override)}` })
    this.#sessions.delete(session)
    if (override !== null) this.#sessions.set(session, { session, override, by, set_at_ms: clock.now() })
  }

  /** Null removes the saved modes. */
  async save(agent: string, row: RowSettings | null, by: string): Promise<void> {
    await this.#deps.store.change({ change: 'modes', by, agent, detail: JSON.stringify(row) }, (store) => withSaved(store, agent, row))
  }
}
