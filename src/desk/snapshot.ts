import { MAIN_AGENT, type StoredAgent, type StoreSnapshot } from '../policy/approval/judge.ts'
import type { ModeOverride } from '../protocol/desk.ts'
import { provenAgent, type Ask, type Question, type Security } from '../protocol/question.ts'
import type { Store, StoreAgent } from './store-shape.ts'

/** The name by which the store knows who asks, as policy takes it: a label counts where whoever starts the server gives it. */
export const rowName = (question: Pick<Question, 'asker' | 'door' | 'target'>): string => {
  const { asker, door } = question
  if (asker.kind === 'mesh') return provenAgent(question) ?? asker.agent_id
  return door === 'mcp' ? asker.label : MAIN_AGENT
}

const ELEVATED: Readonly<Record<'on' | 'ask' | 'full', { readonly security: Security; readonly ask: Ask | null }>> = {
  on: { security: 'full', ask: null },
  ask: { security: 'full', ask: 'always' },
  full: { security: 'full', ask: 'off' },
}

/** What a human's modes say of security and ask: what is elevated stands above the rest. */
const said = ({ security, ask, elevated }: ModeOverride): { readonly security: Security | null; readonly ask: Ask | null } => {
  if (elevated === null) return { security, ask }
  const above = ELEVATED[elevated]
  return { security: above.security, ask: above.ask ?? ask }
}

const asJudged = ({ security, ask, allowlist }: StoreAgent): StoredAgent => ({
  security: security ?? null,
  ask: ask ?? null,
  allowlist: allowlist ?? [],
})

/**
 * The store as policy judges by it. What a human of this host has set for the session, or saved for the agent, stands in place of
 * the row's own security and ask; what the engine was configured with stays the ceiling, and what always asks still asks.
 */
export const snapshotOf = (store: Store, question: Question, override: ModeOverride | null, home: string): StoreSnapshot => {
  const { security, ask, askFallback } = store.defaults
  const rows = new Map(Object.entries(store.agents).map(([name, row]) => [name, asJudged(row)]))
  const name = rowName(question)
  if (override !== null) {
    const own = rows.get(name) ?? { security: null, ask: null, allowlist: [] }
    const modes = said(override)
    rows.set(name, { ...own, security: modes.security ?? own.security, ask: modes.ask ?? own.ask })
  }
  const agents = Object.fromEntries(rows)
  return { defaults: { security, ask, ask_fallback: askFallback }, agents, grants: store.grants, home }
}
