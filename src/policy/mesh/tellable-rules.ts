import type { TimeSlice } from '../../base/time-slices.ts'
import { findMetacharacter, literalOf, parseForeignArgv } from '../../protocol/argv-template.ts'
import { pairKey } from '../../protocol/ids.ts'
import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS, MAX_RULES, MAX_RULES_BYTES, MAX_RULES_ITEMS } from '../../protocol/limits/wire.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { ExecRule } from '../../protocol/wire/exec.ts'
import { type Acl, type AllowEntry, entriesFor, isStdinOpen } from './acl.ts'
import { type Principal, senderDenial } from './authorize.ts'
import { type MatchedCommand, coversAll, overlap } from './match.ts'
import { type Reached, type RuleCaps as Caps, reachedFiles } from './tellable-files.ts'

/** Commands that a pair may know of. */
export interface TellableRules {
  /** In the order of the file. */
  readonly rules: readonly ExecRule[]
  /** Number of commands that did not fit. */
  readonly left_out: number
}

const NOTHING: TellableRules = Object.freeze({ rules: Object.freeze([]), left_out: 0 })

/** Bytes of an encoded rule without its tokens: field headers, and numbers of up to nine bytes. */
const RULE_BYTES = 64
/** CBOR items of a rule without its tokens: the rule, its argv, eight fields, and three for detached runs. */
const RULE_ITEMS = 13
const TOKEN_BYTES = 5

export interface RuleBookComponents {
  /** The ACL may change between two calls. */
  readonly policy: { readonly acl: Acl }
  /** Each command is compared with all earlier ones, so a long file is processed in time slices. */
  readonly time: TimeSlice
}

/** Answers which commands a pair may know of. Cached per pair until the ACL changes. */
export class RuleBook {
  readonly #components: RuleBookComponents
  #of: Acl | null = null
  /** At most one entry for each pair of the ACL. */
  readonly #read = new Map<string, Promise<TellableRules>>()

  constructor(components: RuleBookComponents) {
    this.#components = components
  }

  /**
   * Returns the same empty list if the pair is not listed, has no discoverable command, or exec is disabled. Unverified and untrusted
   * requesters are denied before the ACL is read.
   */
  rulesOf(principal: Principal): Promise<TellableRules> | { readonly reason: DenialReason; readonly detail: string } {
    const denial = senderDenial(principal)
    if (denial !== null) return denial
    const { time, policy } = this.#components
    const { acl } = policy
    if (acl !== this.#of) this.#read.clear()
    this.#of = acl
    if (!acl.enabled) return Promise.resolve(NOTHING)
    const key = pairKey(principal)
    const known = this.#read.get(key)
    if (known !== undefined) return known
    const entries = entriesFor(acl, principal)
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
  for (const { entry, argv, caps } of inOrder(entries, [...(await reached(entries, time)), ...(await reachedFiles(entries, time))])) {
    if (!entry.discoverable) continue
    const bytes = Buffer.byteLength(entry.described ?? '') + sizeOf(argv) + RULE_BYTES
    const items = argv.length + RULE_ITEMS
    const fits = isSendable(argv) && bytes <= room.bytes && items <= room.items && room.rules > 0
    if (!fits) {
      leftOut += 1
      continue
    }
    room.bytes -= bytes
    room.items -= items
    room.rules -= 1
    rules.push({ description: entry.described, argv: [...argv], ...caps })
  }
  return Object.freeze({ rules: Object.freeze(rules), left_out: leftOut })
}

/** Each entry has its commands before its files. */
const inOrder = (entries: readonly AllowEntry[], rules: readonly Reached[]): Reached[] => {
  const byEntry = Map.groupBy(rules, ({ entry }) => entry)
  return entries.flatMap((entry) => byEntry.get(entry) ?? [])
}

/**
 * The commands that a request can match: without metacharacters that deny each request, and not covered by an earlier command. If some
 * requests match an earlier command first, in any entry of the pair, the lowest limits are reported.
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
    found.push({ entry: place.entry, argv, caps: sharers.map(capsOf).reduce(leastCaps, capsOf(place)) })
  }
  return found
}

const sizeOf = (argv: readonly string[]): number => argv.reduce((sum, token) => sum + Buffer.byteLength(token) + TOKEN_BYTES, 0)

/** True if a Request can carry the argv, and its recipient can read it. */
const isSendable = (argv: readonly string[]): boolean =>
  argv.length <= MAX_ARGV_TOKENS && sizeOf(argv) <= MAX_ARGV_BYTES && typeof parseForeignArgv(argv) !== 'string'

const detachOf = ({ detaching }: AllowEntry): Caps['detach'] =>
  detaching && { lifetime_ms: detaching.max_secs * 1000, keep_bytes: detaching.max_output_bytes }

const capsOf = ({ entry, command }: MatchedCommand): Caps => ({
  timeout_ms: entry.limits.max_duration_secs * 1000,
  max_stdout_bytes: entry.limits.max_stdout_bytes,
  max_stderr_bytes: entry.limits.max_stderr_bytes,
  max_stdin_bytes: isStdinOpen(entry, command) ? entry.limits.max_stdin_bytes : 0,
  detach: detachOf(entry),
  terminal: command.terminal,
  record: command.record,
  watch: command.watch,
})

const leastDetach = (one: Caps['detach'], other: Caps['detach']): Caps['detach'] =>
  one && other && { lifetime_ms: Math.min(one.lifetime_ms, other.lifetime_ms), keep_bytes: Math.min(one.keep_bytes, other.keep_bytes) }

const leastCaps = (one: Caps, other: Caps): Caps => ({
  timeout_ms: Math.min(one.timeout_ms, other.timeout_ms),
  max_stdout_bytes: Math.min(one.max_stdout_bytes, other.max_stdout_bytes),
  max_stderr_bytes: Math.min(one.max_stderr_bytes, other.max_stderr_bytes),
  max_stdin_bytes: Math.min(one.max_stdin_bytes, other.max_stdin_bytes),
  detach: leastDetach(one.detach, other.detach),
  terminal: one.terminal && other.terminal,
  // The requester must know of what may happen.
  record: one.record || other.record,
  watch: one.watch || other.watch,
})
