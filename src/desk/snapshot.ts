import { type StoreSnapshot, type StoredAgent, rowName } from '../policy/approval/judge.ts'
import { settingsOf } from '../policy/modes/tools-settings.ts'
import type { ModeOverride } from '../protocol/desk.ts'
import type { Question } from '../protocol/question.ts'
import type { Store, StoreAgent } from './store-shape.ts'

const asJudged = ({ security, ask, askFallback, allowlist }: StoreAgent): StoredAgent => ({
  security: security ?? null,
  ask: ask ?? null,
  ask_fallback: askFallback ?? null,
  allowlist: allowlist ?? [],
})

/**
 * The store as policy judges by it. What a human of this host has set for the session stands in place of
 * the row's own security and ask; what the engine was configured with stays the ceiling, and what always asks still asks.
 */
export const snapshotOf = (store: Store, question: Question, override: ModeOverride | null, home: string): StoreSnapshot => {
  const { security, ask, askFallback } = store.defaults
  const rows = new Map(Object.entries(store.agents).map(([name, row]) => [name, asJudged(row)]))
  const name = rowName(question)
  if (override !== null) {
    const own = rows.get(name) ?? asJudged({})
    const modes = settingsOf(override)
    rows.set(name, { ...own, security: modes.security ?? own.security, ask: modes.ask ?? own.ask })
  }
  const agents = Object.fromEntries(rows)
  return { defaults: { security, ask, ask_fallback: askFallback }, agents, grants: store.grants, home }
}
