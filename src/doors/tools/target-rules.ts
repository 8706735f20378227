import type { Clock } from '../../base/clock.ts'
import { AppError, type ErrorCode, errorText, isAppError, nextOf } from '../../base/errors.ts'
import type { RulesJson } from '../../protocol/rules-json.ts'
import { type RuleCommand, ruleCommands } from './rule-command.ts'

/** A target is asked no more often than that, whoever wants to know. */
export const RULES_REFRESH_MS = 2_000
/** Tools of one server, beside the few that it always has: runtimes take 128 at most, and models choose worse among many. */
export const MAX_RULE_TOOLS = 96
/** How long one question may take: the daemon dials, and asks twice. */
const RULES_PATIENCE_MS = 25_000

export interface TargetRulesComponents {
  /** Throws an `AppError`. */
  ask(signal: AbortSignal): Promise<RulesJson>
  readonly clock: Clock
}

export interface TargetRulesInit {
  /** As a person names it. */
  readonly target: string
  /** Names that other tools have. */
  readonly reserved: readonly string[]
}

/** What is known of the commands that one target allows. */
export interface KnownRules {
  readonly commands: readonly RuleCommand[]
  /** Commands that did not fit its answer, and those above MAX_RULE_TOOLS. */
  readonly left_out: number
  /** Why the last question told nothing; null: it did. The commands are those of the last answer. */
  readonly problem: string | null
  /** Its code, where it has one. */
  readonly code: ErrorCode | null
}

/** The commands that one target allows, as it told them last. */
export class TargetRules {
  readonly #components: TargetRulesComponents
  readonly #init: TargetRulesInit
  readonly #listeners = new Set<() => void>()
  #known: KnownRules = { commands: [], left_out: 0, problem: 'the target has not answered yet', code: null }
  #asking: Promise<boolean> | null = null
  #askedAt = Number.NEGATIVE_INFINITY

  constructor(components: TargetRulesComponents, init: TargetRulesInit) {
    this.#components = components
    this.#init = init
  }

  get target(): string {
    return this.#init.target
  }

  get known(): KnownRules {
    return this.#known
  }

  /** Called when the commands have changed; the answer ends it. */
  onChanged(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** Asks the target again, but not sooner than `RULES_REFRESH_MS` after the last time; callers share a question. Answers whether the commands changed. */
  async refresh(): Promise<boolean> {
    const now = this.#components.clock.monotonic()
    if (this.#asking !== null) return this.#asking
    if (now - this.#askedAt < RULES_REFRESH_MS) return false
    this.#askedAt = now
    this.#asking = this.#ask().finally(() => (this.#asking = null))
    return this.#asking
  }

  async #ask(): Promise<boolean> {
    const late = new AbortController()
    const timer = this.#components.clock.setTimeout(
      () => late.abort(new AppError('timeout', 'the target did not answer')),
      RULES_PATIENCE_MS,
    )
    try {
      const answer = await this.#components.ask(late.signal)
      if (!answer.ok)
        throw new AppError('command_denied', `${this.target} does not say which commands it allows: ${String(answer.denial_reason)}`)
      const { target, reserved } = this.#init
      const commands = ruleCommands(target, answer.rules, reserved)
      const left_out = answer.left_out + Math.max(commands.length - MAX_RULE_TOOLS, 0)
      return this.#take({ commands: commands.slice(0, MAX_RULE_TOOLS), left_out, problem: null, code: null })
    } catch (error) {
      // What is no answer takes nothing away: the target decides about each run anyway.
      const problem = [errorText(error), nextOf(error).next ?? []].flat().join('; ')
      this.#known = { ...this.#known, problem, code: isAppError(error) ? error.code : null }
      return false
    } finally {
      timer.cancel()
    }
  }

  #take(known: KnownRules): boolean {
    const isSame = shapeOf(known) === shapeOf(this.#known)
    this.#known = known
    if (!isSame) for (const listener of this.#listeners) listener()
    return !isSame
  }
}

/** All that a client is told of the commands. */
const shapeOf = ({ commands }: KnownRules): string => JSON.stringify(commands.map(({ name, rule }) => [name, rule]))
