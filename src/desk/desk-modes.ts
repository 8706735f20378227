import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { together } from '../policy/modes/tools-settings.ts'
import type { ModeOverride, SessionModes } from '../protocol/desk.ts'
import { MAX_OVERRIDES } from '../protocol/desk-limits.ts'
import type { ApprovalStore } from './approval-store.ts'
import { withModes } from './store-changes.ts'
import type { DeskJournal } from './desk-journal.ts'

export interface DeskModesComponents {
  readonly clock: Clock
  readonly store: Pick<ApprovalStore, 'read' | 'change'>
  readonly journal: Pick<DeskJournal, 'changed'>
}

/** How far sessions may go: what humans have set for one lives here until the desk ends; what they have saved for an agent is in the store. */
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

  /** What counts for a session of an agent, each setting by itself: set for that very one, or for all of the agent's, or saved. Throws as the store's `read`. */
  async of(session: string | null, agent: string | null): Promise<ModeOverride | null> {
    const saved = await this.saved(agent)
    return together(this.ofSession(session), this.ofSession(agent), saved)
  }

  async saved(agent: string | null): Promise<ModeOverride | null> {
    const { modes } = await this.#components.store.read()
    return agent !== null && Object.hasOwn(modes, agent) ? (modes[agent] ?? null) : null
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

  async save(agent: string, override: ModeOverride | null, by: string): Promise<void> {
    await this.#components.store.change({ change: 'modes', by, agent, detail: JSON.stringify(override) }, (store) =>
      withModes(store, agent, override),
    )
  }
}
