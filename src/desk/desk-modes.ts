import { BoundedMap } from '../base/bounded.ts'
import type { ModeOverride } from '../protocol/desk.ts'
import { MAX_OVERRIDES } from '../protocol/desk-limits.ts'
import type { ApprovalStore } from './approval-store.ts'
import { withModes } from './store-changes.ts'
import type { DeskJournal } from './desk-journal.ts'

export interface DeskModesComponents {
  readonly store: ApprovalStore
  readonly journal: DeskJournal
}

/** How far sessions may go: what humans have set for one lives here until the desk ends; what they have saved for an agent is in the store. */
export class DeskModes {
  readonly #components: DeskModesComponents
  readonly #sessions = new BoundedMap<string, ModeOverride>({ max: MAX_OVERRIDES })

  constructor(components: DeskModesComponents) {
    this.#components = components
  }

  ofSession(session: string | null): ModeOverride | null {
    return session === null ? null : (this.#sessions.get(session) ?? null)
  }

  /** What counts for a session of an agent: set for that very one, or for all of the agent's, or saved. Throws as the store's `read`. */
  async of(session: string | null, agent: string | null): Promise<ModeOverride | null> {
    return this.ofSession(session) ?? this.ofSession(agent) ?? (await this.saved(agent))
  }

  async saved(agent: string | null): Promise<ModeOverride | null> {
    const { modes } = await this.#components.store.read()
    return agent !== null && Object.hasOwn(modes, agent) ? (modes[agent] ?? null) : null
  }

  /** Null: as configured. Throws `journal_unavailable`. */
  async set(session: string, override: ModeOverride | null, by: string): Promise<void> {
    await this.#components.journal.changed({ change: 'session_modes', by, agent: null, detail: `${session} ${JSON.stringify(override)}` })
    if (override === null) this.#sessions.delete(session)
    else this.#sessions.set(session, override)
  }

  async save(agent: string, override: ModeOverride | null, by: string): Promise<void> {
    await this.#components.store.change({ change: 'modes', by, agent, detail: JSON.stringify(override) }, (store) =>
      withModes(store, agent, override),
    )
  }
}
