import { homeDirectory } from '../base/home.ts'
import { type Judgement, type StoreSnapshot, type StoredAgent, type judge, rowName } from '../policy/approval/judge.ts'
import { settingsOf } from '../policy/modes.ts'
import type { Grant, HumanDecision, ModeOverride } from '../protocol/desk/messages.ts'
import type { ApprovalRequest } from '../protocol/desk/approval-request.ts'
import { grantBounds } from '../protocol/limits/approvals.ts'
import { type Ending, denial } from './decisions.ts'
import { storeProblem } from './approval-store.ts'
import { newNonce } from './seal.ts'
import { type Store, type StoreAgent, withGrant, withUse } from './store-format.ts'
import type { DeskServices } from './services.ts'
import type { DeskModes } from './modes.ts'

const asJudged = ({ security, ask, askFallback, allowlist }: StoreAgent): StoredAgent => ({
  security: security ?? null,
  ask: ask ?? null,
  ask_fallback: askFallback ?? null,
  allowlist: allowlist ?? [],
})

/**
 * The store as policy reads it. Modes that an approver set for the session replace those of the agent's row. The engine's configuration
 * stays the ceiling, and `always_ask` still asks.
 */
export const snapshotOf = (store: Store, question: ApprovalRequest, override: ModeOverride | null, home: string): StoreSnapshot => {
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

type JudgingDeps = Pick<DeskServices, 'clock' | 'store'> & { readonly modes: DeskModes }

/** Decides requests by policy and the store, and records the use of grants. */
export class Judging {
  readonly #deps: JudgingDeps

  constructor(deps: JudgingDeps) {
    this.#deps = deps
  }

  /**
   * `by`: the first judgement, or the one without approvers. The use of a grant is stored before the answer. If another process used up the
   * grant meanwhile, the request is judged again. A store that cannot be used denies.
   */
  async judged(question: ApprovalRequest, by: typeof judge): Promise<Judgement> {
    try {
      for (;;) {
        const judged = await this.#poll(question, by)
        if (judged.kind !== 'allow' || judged.grant_id === null || (await this.#use(question, judged.grant_id))) return judged
      }
    } catch (error) {
      return { kind: 'deny', reason: storeProblem(error) }
    }
  }

  /** The end that a judgement leads to. `otherwise`: the decision in place of an allowance. */
  ending(question: ApprovalRequest, judged: Judgement, otherwise: 'deny' | 'no_ui'): Ending {
    if (judged.kind !== 'allow') return denial(otherwise, judged.kind === 'ask' ? judged.why : judged.reason)
    const { by, pattern, grant_id } = judged
    const { clock, store } = this.#deps
    if (pattern !== null) {
      const [at_ms, command] = [clock.now(), question.argv.join(' ')]
      store.lastUsed({ agent: rowName(question), pattern, grant_id, at_ms, command, path: question.executable })
    }
    return { decision: 'allow', outcome: 'allowed', by, reason: '' }
  }

  async #poll(question: ApprovalRequest, by: typeof judge): Promise<Judgement> {
    const { clock, modes, store: approvals } = this.#deps
    const store = await approvals.read()
    const override = await modes.of(question.session_id, rowName(question))
    return by(question, snapshotOf(store, question, override, homeDirectory()), clock.now())
  }

  async #use(question: ApprovalRequest, grantId: string): Promise<boolean> {
    const { clock, store } = this.#deps
    const change = { change: 'grant_use', by: 'desk', agent: rowName(question), detail: grantId } as const
    return store.change(change, (before) => withUse(before, grantId, clock.now()))
  }

  /** Stores the grant of an "always" decision and returns its ID. `announced`: see `ApprovalStore.change`; so are the errors. */
  async grant(
    question: ApprovalRequest,
    { expires_in_ms: lasts = grantBounds(question.opaque).usual, uses }: HumanDecision,
    by: string,
    announced: (grantId: string) => Promise<void>,
  ): Promise<string> {
    const { clock, store } = this.#deps
    const [id, now] = [`g_${newNonce()}`, clock.now()]
    const { grant_sha256, argv, executable, cwd, timeout_ms, max_output_bytes } = question
    const agent = rowName(question)
    const grant: Grant = {
      id,
      grant_sha256: grant_sha256 ?? '',
      agent,
      argv,
      executable,
      cwd,
      timeout_ms,
      max_output_bytes,
      created_at_ms: now,
      expires_at_ms: now + lasts,
      // The current run is the first use.
      uses_left: uses === undefined ? null : uses - 1,
      by: `human:${by}`,
      last_used_at_ms: now,
    }
    await store.change(
      { change: 'grant', by: `human:${by}`, agent, detail: id },
      (before) => withGrant(before, grant, now),
      async () => announced(id),
    )
    return id
  }
}
