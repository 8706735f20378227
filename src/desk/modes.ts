import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { together } from '../policy/modes.ts'
import type { ModeOverride, RowSettings, SessionModes } from '../protocol/desk/messages.ts'
import { overrideText } from '../protocol/desk/mode-command.ts'
import { MAX_OVERRIDES } from '../protocol/limits/approvals.ts'
import type { ApprovalStore } from './approval-store.ts'
import type { DeskJournal } from './journal.ts'
import { type Store, withSaved } from './store-format.ts'

export interface DeskModesComponents {
  readonly clock: Clock
  readonly store: Pick<ApprovalStore, 'read' | 'change'>
  readonly journal: Pick<DeskJournal, 'changed'>
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

/** What humans have set for sessions. It ends with the desk; what they save is in the agent's row of the store. */
export class DeskModes {
  readonly #components: DeskModesComponents
  readonly #sessions = new Map<string, SessionModes>()

  constructor(components: DeskModesComponents) {
    this.#components = components
  }

  /** All that is set, the latest last. */
  get all(): readonly SessionModes[] {
    return [...this.#sessions.values()]
  }

  ofSession(session: string | null): ModeOverride | null {
    return session === null ? null : (this.#sessions.get(session)?.override ?? null)
  }

  /** What is set for a session over what is set for all sessions of its agent, each setting by itself. */
  together(session: string | null, agent: string | null): ModeOverride | null {
    return together(this.ofSession(session), this.ofSession(agent))
  }

  /** As `together`, for an engine. Throws as the store's `read` and as `checkOldModes`. */
  async of(session: string | null, agent: string | null): Promise<ModeOverride | null> {
    checkOldModes(await this.#components.store.read(), agent)
    return this.together(session, agent)
  }

  /** Null: as configured. Throws `journal_unavailable`; `resource_limit` where one more would have another forgotten, which may narrow. */
  async set(session: string, override: ModeOverride | null, by: string): Promise<void> {
    const { clock, journal } = this.#components
    if (override !== null && !this.#sessions.has(session) && this.#sessions.size >= MAX_OVERRIDES)
      throw new AppError('resource_limit', `modes of ${MAX_OVERRIDES} sessions are set: take some back (x0x exec-mode list, off --session)`)
    await journal.changed({ change: 'session_modes', by, agent: null, detail: `${session} ${JSON.stringify(override)}` })
    this.#sessions.delete(session)
    if (override !== null) this.#sessions.set(session, { session, override, by, set_at_ms: clock.now() })
  }

  /** Null: takes back what was saved. */
  async save(agent: string, row: RowSettings | null, by: string): Promise<void> {
    await this.#components.store.change({ change: 'modes', by, agent, detail: JSON.stringify(row) }, (store) =>
      withSaved(store, agent, row),
    )
  }
}
