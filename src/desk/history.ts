import { AppError } from '../base/errors.ts'
import { homeDirectory } from '../base/home.ts'
import { rowProblem } from '../policy/approval/allowlist-row.ts'
import { stricterFallback } from '../policy/modes.ts'
import type { Grant, ApprovalClientBody } from '../protocol/desk/messages.ts'
import type { LifecycleEvent } from '../protocol/events/lifecycle.ts'
import { MAX_DESK_REPLY } from '../protocol/limits/approvals.ts'
import { withPattern, withoutGrant, withoutPattern } from './store-format.ts'
import type { DeskServices } from './services.ts'
import type { DeskModes } from './modes.ts'

type RecordsDeps = Pick<DeskServices, 'store' | 'journal'> & { readonly modes: DeskModes }
type RecordRequest = Extract<ApprovalClientBody, { type: 'store' | 'grants' | 'revoke' | 'allowlist_add' | 'allowlist_remove' | 'history' }>

/** The newest entries that fit into one reply, oldest first. */
const newest = <T>(all: readonly T[]): readonly T[] => {
  let left = MAX_DESK_REPLY / 4
  const kept: T[] = []
  for (const one of all.toReversed()) {
    left -= Buffer.byteLength(JSON.stringify(one))
    if (left < 0) break
    kept.unshift(one)
  }
  return kept
}

/** Shows approvers the store and the approval log, and changes the store for them. */
export class DeskRecords {
  readonly #deps: RecordsDeps

  constructor(deps: RecordsDeps) {
    this.#deps = deps
  }

  async answer(body: RecordRequest, by: string): Promise<object> {
    switch (body.type) {
      case 'store': {
        const { version, defaults, agents, grants, modes } = await this.#deps.store.read()
        return { version, defaults, agents, grants, modes }
      }
      case 'grants':
        return this.#grants()
      case 'revoke':
        return this.#revoke(body.grant_id, by)
      case 'allowlist_add':
      case 'allowlist_remove':
        return this.#pattern(body, by)
      case 'history': {
        const lines = await this.#deps.journal.history(body.limit)
        return { lines: newest(lines) }
      }
    }
  }

  /** Runs that have not ended: the newest that fit into one reply. */
  running(events: readonly LifecycleEvent[]): object {
    return { running: newest(events.toSorted((a, b) => (a.ts < b.ts ? -1 : 1))) }
  }

  /** Modes of sessions, the latest last, and agents whose row sets `security` or `ask`. */
  async allModes(): Promise<object> {
    const { store, modes } = this.#deps
    const all = Object.entries((await store.read()).agents).flatMap(([agent, { security = null, ask = null }]) =>
      security === null && ask === null ? [] : [{ agent, security, ask }],
    )
    const [sessions, saved] = [newest(modes.all), newest(all)]
    return { sessions, saved, left_out: modes.all.length + all.length - sessions.length - saved.length }
  }

  /** Modes of a session, of all sessions of an agent, and both combined, with the settings of the store. */
  async modes(session: string | null, agent: string | null): Promise<object> {
    const { store, modes } = this.#deps
    const { defaults, agents } = await store.read()
    const row = agent !== null && Object.hasOwn(agents, agent) ? agents[agent] : undefined
    return {
      session: modes.ofSession(session),
      all_sessions: modes.ofSession(agent),
      together: modes.together(session, agent),
      security: row?.security ?? defaults.security,
      ask: row?.ask ?? defaults.ask,
      ask_fallback: stricterFallback(defaults.askFallback, row?.askFallback ?? defaults.askFallback),
    }
  }

  async #grants(): Promise<{ readonly grants: readonly Grant[]; readonly left_out: number }> {
    const { grants } = await this.#deps.store.read()
    const kept = newest(grants)
    return { grants: kept, left_out: grants.length - kept.length }
  }

  async #revoke(id: string, by: string): Promise<object> {
    const { store } = this.#deps
    const change = { change: 'revoke', by, agent: null, detail: id } as const
    return { revoked: await store.change(change, (before) => withoutGrant(before, id)) }
  }

  async #pattern(body: Extract<RecordRequest, { pattern: string }>, by: string): Promise<object> {
    const { type, agent, pattern } = body
    const opaque = type === 'allowlist_add' && body.opaque === true
    const problem = type === 'allowlist_add' ? rowProblem(agent, { pattern, opaque }, homeDirectory()) : null
    // A pattern that does not cover opaque programs is accepted: it allows none of them.
    if (problem?.isRefused === true) throw new AppError('bad_request', `${JSON.stringify(pattern)}: ${problem.why}`)
    const change = { change: type, by, agent, detail: opaque ? `${pattern} (opaque)` : pattern }
    return {
      changed: await this.#deps.store.change(change, (before) =>
        type === 'allowlist_add' ? withPattern(before, agent, pattern, opaque) : withoutPattern(before, agent, pattern),
      ),
    }
  }
}
