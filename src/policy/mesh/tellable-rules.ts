import type { TimeSlice } from '../../base/time-slices.ts'
import { findMetacharacter, literalOf } from '../../protocol/argv-template.ts'
import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS, MAX_RULES, MAX_RULES_BYTES, MAX_RULES_ITEMS } from '../../protocol/limits/wire.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { ExecRule } from '../../protocol/wire/exec.ts'
import { type Acl, type AllowEntry, isStdinOpen } from './acl.ts'
import { type Principal, senderDenial } from './authorize.ts'
import { type MatchedCommand, coversAll, overlap } from './match.ts'

/** What a pair may be told of what it may run. */
export interface TellableRules {
  /** In the order of the file. */
  readonly rules: readonly ExecRule[]
  /** Commands that did not fit beside them. */
  readonly left_out: number
}

const NOTHING: TellableRules = Object.freeze({ rules: Object.freeze([]), left_out: 0 })

/** Of the encoding of a rule: the heads of its fields, and numbers of up to nine bytes. */
const RULE_BYTES = 64
/** Its items beside the tokens: itself, its argv, five more, and three of what outlives its caller. */
const RULE_ITEMS = 10
const TOKEN_BYTES = 5

export interface RuleBookComponents {
  /** Its ACL may be another from one question to the next. */
  readonly policy: { readonly acl: Acl }
  /** Each command is held against those before it: a long file takes its turns. */
  readonly time: TimeSlice
}

/** Which commands of an ACL each pair may be told of. Read once for a pair, until another ACL is in force. */
export class RuleBook {
  readonly #components: RuleBookComponents
  #of: Acl | null = null
  /** As many as the ACL has pairs. */
  readonly #read = new Map<string, Promise<TellableRules>>()

  constructor(components: RuleBookComponents) {
    this.#components = components
  }

  /**
   * Nothing for a pair that the file does not list, that may run nothing it may be told of, or where exec is off: these
   * are not told apart. Who is not verified or not trusted is denied before the file is looked at.
   */
  rulesOf(principal: Principal): Promise<TellableRules> | { readonly reason: DenialReason; readonly detail: string } {
    const denial = senderDenial(principal)
    if (denial !== null) return denial
    const { time, policy } = this.#components
    const { acl } = policy
    if (acl !== this.#of) this.#read.clear()
    this.#of = acl
    if (!acl.enabled) return Promise.resolve(NOTHING)
    const { agent_id, machine_id } = principal
    const key = `${agent_id}:${machine_id}`
    const known = this.#read.get(key)
    if (known !== undefined) return known
    const entries = acl.allow.filter((entry) => entry.agent_id === agent_id && entry.machine_id === machine_id)
    if (entries.length === 0) return Promise.resolve(NOTHING)
    const rules = tellable(entries, time)
    this.#read.set(key, rules)
    return rules
  }
}

const tellable = async (entries: readonly AllowEntry[], time: TimeSlice): Promise<TellableRules> => {
  const rules: ExecRule[] = []
  const room = { bytes: MAX_RULES_BYTES, items: MAX_RULES_ITEMS, rules: MAX_RULES }
  let leftOut = 0
  for (const { entry, command, caps } of await reached(entries, time)) {
    if (!entry.discoverable) continue
    const bytes = Buffer.byteLength(entry.described ?? '') + sizeOf(command.argv) + RULE_BYTES
    const items = command.argv.length + RULE_ITEMS
    const fits = isSendable(command.argv) && bytes <= room.bytes && items <= room.items && room.rules > 0
    if (!fits) {
      leftOut += 1
      continue
    }
    room.bytes -= bytes
    room.items -= items
    room.rules -= 1
    rules.push({ description: entry.described, argv: [...command.argv], ...caps })
  }
  return Object.freeze({ rules: Object.freeze(rules), left_out: leftOut })
}

type Caps = Omit<ExecRule, 'description' | 'argv'>

interface Reached extends MatchedCommand {
  /** What every request that fits the command is allowed at least. */
  readonly caps: Caps
}

/**
 * The commands that a request can come to: none whose literals every request is refused for, none behind one that takes all it
 * takes. Some requests that fit a command may come to an earlier one, in whatever entry of the pair: it has the least caps of these.
 */
const reached = async (entries: readonly AllowEntry[], time: TimeSlice): Promise<Reached[]> => {
  const earlier = new Map<string, MatchedCommand[]>()
  const found: Reached[] = []
  for (const place of entries.flatMap((entry) => entry.commands.map((command) => ({ entry, command })))) {
    if (time.shouldYield) await time.yieldTurn()
    const { argv, tokens } = place.command
    if (findMetacharacter(tokens.map(literalOf)) !== null) continue
    const key = JSON.stringify([argv[0], argv.length])
    const before = earlier.get(key) ?? []
    earlier.set(key, before)
    if (before.some(({ command }) => coversAll(command.tokens, tokens))) continue
    const sharers = before.filter(({ command }) => overlap(command.tokens, tokens))
    before.push(place)
    found.push({ ...place, caps: sharers.map(capsOf).reduce(leastCaps, capsOf(place)) })
  }
  return found
}

const sizeOf = (argv: readonly string[]): number => argv.reduce((sum, token) => sum + Buffer.byteLength(token) + TOKEN_BYTES, 0)

/** A Request can carry it. */
const isSendable = (argv: readonly string[]): boolean => argv.length <= MAX_ARGV_TOKENS && sizeOf(argv) <= MAX_ARGV_BYTES

const detachOf = ({ detaching }: AllowEntry): Caps['detach'] =>
  detaching && { lifetime_ms: detaching.max_secs * 1000, keep_bytes: detaching.max_output_bytes }

const capsOf = ({ entry, command }: MatchedCommand): Caps => ({
  timeout_ms: entry.limits.max_duration_secs * 1000,
  max_stdout_bytes: entry.limits.max_stdout_bytes,
  max_stderr_bytes: entry.limits.max_stderr_bytes,
  max_stdin_bytes: isStdinOpen(entry, command) ? entry.limits.max_stdin_bytes : 0,
  detach: detachOf(entry),
})

const leastDetach = (one: Caps['detach'], other: Caps['detach']): Caps['detach'] =>
  one && other && { lifetime_ms: Math.min(one.lifetime_ms, other.lifetime_ms), keep_bytes: Math.min(one.keep_bytes, other.keep_bytes) }

const leastCaps = (one: Caps, other: Caps): Caps => ({
  timeout_ms: Math.min(one.timeout_ms, other.timeout_ms),
  max_stdout_bytes: Math.min(one.max_stdout_bytes, other.max_stdout_bytes),
  max_stderr_bytes: Math.min(one.max_stderr_bytes, other.max_stderr_bytes),
  max_stdin_bytes: Math.min(one.max_stdin_bytes, other.max_stdin_bytes),
  detach: leastDetach(one.detach, other.detach),
})
