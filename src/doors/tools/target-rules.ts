import { createHash } from 'node:crypto'
import { basename } from 'node:path'
import type { Clock } from '../../base/clock.ts'
import { AppError, type ErrorCode, errorText, isAppError, nextOf } from '../../base/errors.ts'
import type { RulesJson } from '../../protocol/api/rules.ts'
import { type PatternToken, matchesToken, parseToken } from '../../protocol/argv-template.ts'
import { isFileCommand } from '../../protocol/file-command.ts'
import { isHexId } from '../../protocol/ids.ts'
import type { ExecRule } from '../../protocol/wire/exec.ts'

/** Longest name of a tool. MCP clients put `mcp__SERVER__` before it, and function names of some models end at 60 characters. */
export const MAX_TOOL_NAME = 40
/** Longest target in a name, so that words of the command still fit. */
const MAX_TARGET_IN_NAME = 12
/** Hex digits of an argv's hash in a name. The long form tells names apart where a target searched for two argv with equal short hashes. */
const NAME_HASH = { short: 8, long: MAX_TOOL_NAME - MAX_TARGET_IN_NAME - 1 } as const
/** Matches a name of literals that could also be the hashed name of another command. */
const READS_AS_HASHED = new RegExp(`_(?:[0-9a-f]{${NAME_HASH.short}}|[0-9a-f]{${NAME_HASH.long}})$`, 'i')
/** Number of characters of a target's ID that represent it. */
const SHOWN_ID = 8

/** A slot of an argv, which the client fills. */
export interface RuleSlot {
  /** `int` or `url_path`, with a number from 1 if the command has several of the kind. */
  readonly name: string
  readonly kind: 'int' | 'url_path'
  /** Index of the token in the argv. */
  readonly token: number
  /** Literal text before the slot, in its token or the token before. */
  readonly hint: string
}

/** A command of a target, offered as a tool. */
export interface RuleCommand {
  /** Name of the tool. It does not depend on the order of the rules. */
  readonly name: string
  readonly rule: ExecRule
  readonly slots: readonly RuleSlot[]
  /** Returns the argv with these values. Throws `TypeError` for a missing or invalid value. */
  fill(values: Readonly<Record<string, unknown>>): string[]
}

/**
 * The distinct commands of a target, in order. `reserved` are names of other tools. A name consists of the target and the literals of the
 * argv. If that is not a unique valid name, it ends with a hash of the argv, so that no name ever moves to another command. Throws
 * `TypeError` for an invalid token.
 */
export const ruleCommands = (target: string, rules: readonly ExecRule[], reserved: readonly string[]): RuleCommand[] => {
  // A rule of files names a root, which is not an argv to run.
  const commands = rules.filter(({ argv }) => !isFileCommand(argv))
  const unique = [...new Map(commands.map((rule) => [JSON.stringify(rule.argv), rule] as const).toReversed()).values()].toReversed()
  const parsed = unique.map((rule) => ({ rule, tokens: rule.argv.map(parse) }))
  const words = parsed.map(({ tokens }) => wordsOf(target, tokens))
  const isAlone = onceIn([...reserved, ...words])
  const isName = (name: string): boolean =>
    isAlone(name) && name.length <= MAX_TOOL_NAME && name !== targetWord(target) && !READS_AS_HASHED.test(name)
  const names = parsed.map(({ rule }, at) => (isName(words[at]!) ? words[at]! : hashedName(words[at]!, rule.argv, NAME_HASH.short)))
  const isUnique = onceIn(names)
  return parsed.map(({ rule, tokens }, at) => {
    const name = isUnique(names[at]!) ? names[at]! : hashedName(words[at]!, rule.argv, NAME_HASH.long)
    const slots = slotsOf(tokens)
    return { name, rule, slots, fill: (values) => fill(tokens, slots, values) }
  })
}

/** Whether a name occurs once, ignoring case. */
const onceIn = (names: readonly string[]): ((name: string) => boolean) => {
  const counts = new Map<string, number>()
  for (const name of names) counts.set(name.toLowerCase(), (counts.get(name.toLowerCase()) ?? 0) + 1)
  return (name) => counts.get(name.toLowerCase()) === 1
}

const parse = (text: string): PatternToken => {
  const token = parseToken(text)
  if (typeof token === 'string') throw new TypeError(token)
  return token
}

/** Letters, digits and single underscores. */
const word = (text: string): string => text.replaceAll(/[^A-Za-z0-9]+/g, '_').replaceAll(/^_+|_+$/g, '')

const targetWord = (target: string): string =>
  (isHexId(target) ? target.slice(0, SHOWN_ID) : word(target).slice(0, MAX_TARGET_IN_NAME)) || 'target'

const wordsOf = (target: string, tokens: readonly PatternToken[]): string => {
  const literals = tokens.flatMap((token, at) => {
    if (token.kind === 'literal') return [word(at === 0 ? basename(token.text) : token.text)]
    return token.kind === 'url_path' ? [word(token.prefix)] : []
  })
  return [targetWord(target), ...literals].filter((text) => text !== '').join('_')
}

const hashedName = (name: string, argv: readonly string[], digits: number): string => {
  const hash = createHash('sha256').update(JSON.stringify(argv)).digest('hex').slice(0, digits)
  return `${name.slice(0, MAX_TOOL_NAME - digits - 1)}_${hash}`
}

const slotsOf = (tokens: readonly PatternToken[]): RuleSlot[] => {
  const count = (kind: RuleSlot['kind'], before: number): number => tokens.slice(0, before).filter((token) => token.kind === kind).length
  return tokens.flatMap((token, at) => {
    if (token.kind === 'literal') return []
    const { kind } = token
    const isOnly = count(kind, tokens.length) === 1
    return [{ name: isOnly ? kind : `${kind}_${count(kind, at) + 1}`, kind, token: at, hint: hintOf(tokens, at) }]
  })
}

const hintOf = (tokens: readonly PatternToken[], at: number): string => {
  const token = tokens[at]
  if (token?.kind === 'url_path' && token.prefix !== '') return token.prefix
  const before = tokens[at - 1]
  return before?.kind === 'literal' ? before.text : ''
}

const fill = (tokens: readonly PatternToken[], slots: readonly RuleSlot[], values: Readonly<Record<string, unknown>>): string[] =>
  tokens.map((token, at) => {
    if (token.kind === 'literal') return token.text
    const { name } = slots.find((slot) => slot.token === at)!
    const value = values[name]
    const text = token.kind === 'int' ? String(value) : `${token.prefix}${String(value)}`
    if (typeof value !== (token.kind === 'int' ? 'number' : 'string') || !matchesToken(token, text))
      throw new TypeError(`${name}: ${token.kind === 'int' ? '<INT>' : '<URL_PATH>'} does not accept this value`)
    return text
  })

/** Minimum interval between two requests to a target. */
export const RULES_REFRESH_MS = 2_000
/** Maximum number of rule tools of a server. Runtimes accept 128 tools, and models choose worse among many. */
export const MAX_RULE_TOOLS = 96
/** Timeout of one request, in which the daemon may dial and ask twice. */
const RULES_PATIENCE_MS = 25_000

export interface TargetRulesComponents {
  /** Throws an `AppError`. */
  ask(signal: AbortSignal): Promise<RulesJson>
  readonly clock: Clock
}

export interface TargetRulesInit {
  /** Name of the target as the user wrote it. */
  readonly target: string
  /** Names of other tools. */
  readonly reserved: readonly string[]
}

export interface KnownRules {
  readonly commands: readonly RuleCommand[]
  /** Commands that did not fit into the target's answer, and those above MAX_RULE_TOOLS. */
  readonly left_out: number
  /** Why the last request failed. Null means it succeeded. The commands are those of the last answer. */
  readonly problem: string | null
  readonly code: ErrorCode | null
}

/** The commands that one target allows, according to its last answer. */
export class TargetRules {
  readonly #deps: TargetRulesComponents
  readonly #init: TargetRulesInit
  readonly #listeners = new Set<() => void>()
  #known: KnownRules = { commands: [], left_out: 0, problem: 'the target has not answered yet', code: null }
  #asking: Promise<boolean> | null = null
  #askedAt = Number.NEGATIVE_INFINITY

  constructor(deps: TargetRulesComponents, init: TargetRulesInit) {
    this.#deps = deps
    this.#init = init
  }

  get target(): string {
    return this.#init.target
  }

  get known(): KnownRules {
    return this.#known
  }

  /** Returns a function that removes the listener. */
  onChanged(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /**
   * Asks the target again, at most once per `RULES_REFRESH_MS`. Concurrent calls share a request. Resolves to true for changed commands.
   */
  async refresh(): Promise<boolean> {
    const now = this.#deps.clock.monotonic()
    if (this.#asking !== null) return this.#asking
    if (now - this.#askedAt < RULES_REFRESH_MS) return false
    this.#askedAt = now
    this.#asking = this.#ask().finally(() => (this.#asking = null))
    return this.#asking
  }

  async #ask(): Promise<boolean> {
    const late = new AbortController()
    const timer = this.#deps.clock.setTimeout(() => late.abort(new AppError('timeout', 'the target did not answer')), RULES_PATIENCE_MS)
    try {
      const answer = await this.#deps.ask(late.signal)
      if (!answer.ok)
        throw new AppError('command_denied', `${this.target} does not say which commands it allows: ${String(answer.denial_reason)}`)
      const { target, reserved } = this.#init
      const commands = ruleCommands(target, answer.rules, reserved)
      const left_out = answer.left_out + Math.max(commands.length - MAX_RULE_TOOLS, 0)
      return this.#take({ commands: commands.slice(0, MAX_RULE_TOOLS), left_out, problem: null, code: null })
    } catch (error) {
      // A failure keeps the known commands, because the target decides about each run anyway.
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

/** Everything that a client sees of the commands. */
const shapeOf = ({ commands }: KnownRules): string => JSON.stringify(commands.map(({ name, rule }) => [name, rule]))
