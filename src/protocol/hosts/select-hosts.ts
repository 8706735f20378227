import { AppError } from '../../base/errors.ts'
import { didYouMean } from '../../base/format.ts'
import type { SelectedHost } from '../api-answers.ts'
import { type AgentId, isHexId } from '../ids.ts'
import { MAX_CHOICE_STEPS, MAX_FANOUT_HOSTS, MAX_HOST_WORDS, MAX_ID_PREFIXES, MAX_SHOWN_NAMES } from '../limits/fleet.ts'
import { MAX_NAME, MIN_ID_PREFIX } from '../limits/wire.ts'
import type { ContactIndex } from './contact-index.ts'
import { NO_LABELS, labelProblem } from './labels.ts'
import { type NodeSet, expandNodeSet, foldNodeSet, parseNodeSet } from './node-set.ts'

/** One term of a host expression. */
export type HostPart =
  /** A contact's name, an ID, or an ID prefix. */
  | { readonly kind: 'one'; readonly text: string }
  | { readonly kind: 'set'; readonly set: NodeSet }
  | { readonly kind: 'group'; readonly name: string }
  | { readonly kind: 'label'; readonly key: string; readonly value: string }

/** Selects the hosts of `include` without those of `leaveOut`. */
export interface HostExpression {
  readonly include: readonly HostPart[]
  readonly leaveOut: readonly HostPart[]
}

const GROUP = new RegExp(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,${MAX_NAME - 1}}$`)

export const groupNameProblem = (name: string): string | null =>
  GROUP.test(name)
    ? null
    : `${JSON.stringify(name.slice(0, 80))} is not a group name: use 1 to ${MAX_NAME} letters, digits, ".", "_" and "-", and do not begin with "." or "-"`

const refuse = (why: string): never => {
  throw new AppError('bad_request', why)
}

/** Splits at commas outside brackets. Unbalanced brackets are reported later. */
const partsOf = (word: string): string[] => {
  const parts: string[] = []
  let [from, depth] = [0, 0]
  for (let at = 0; at < word.length; at++) {
    const character = word[at]
    if (character === '[') depth++
    else if (character === ']') depth--
    else if (character === ',' && depth <= 0) {
      parts.push(word.slice(from, at))
      from = at + 1
    }
  }
  return [...parts, word.slice(from)]
}

const partOf = (text: string): HostPart => {
  if (text === '') return refuse('a host is missing: a word, or a part before or after a comma, is empty')
  if (text.startsWith('@')) {
    const problem = groupNameProblem(text.slice(1))
    return problem === null ? { kind: 'group', name: text.slice(1) } : refuse(problem)
  }
  const sign = text.indexOf('=')
  if (sign !== -1) {
    const [key, value] = [text.slice(0, sign), text.slice(sign + 1)]
    const problem = labelProblem(key, value)
    return problem === null ? { kind: 'label', key, value } : refuse(problem)
  }
  const set = parseNodeSet(text)
  const [{ brackets }] = set.patterns as [NodeSet['patterns'][number]]
  return brackets.length === 0 ? { kind: 'one', text } : { kind: 'set', set }
}

/**
 * Parses host terms separated by commas. A term is a name, an ID, a node set, `@group` or `key=value`, with `!` before a term to leave out.
 * Throws `bad_request`, also if node sets mean too many hosts.
 */
export const parseHostExpression = (words: readonly string[]): HostExpression => {
  if (words.reduce((sum, word) => sum + word.length, 0) > MAX_HOST_WORDS)
    refuse(`the host expression has more than ${MAX_HOST_WORDS} characters`)
  const include: HostPart[] = []
  const leaveOut: HostPart[] = []
  for (const word of words) {
    const parts = partsOf(word)
    if (word.startsWith('!') && parts.some((part) => !part.startsWith('!')))
      refuse(`${JSON.stringify(word.slice(0, 80))} excludes only its first part: write ! before each part, or put the included hosts first`)
    for (const part of parts) {
      if (part.startsWith('!')) leaveOut.push(partOf(part.slice(1)))
      else include.push(partOf(part))
    }
  }
  if (words.length === 0) refuse('no host given')
  if (include.length === 0)
    refuse(`${JSON.stringify(words.join(' ').slice(0, 80))} excludes hosts, but no hosts are included. Add at least one host`)
  for (const list of [include, leaveOut]) {
    const count = list.reduce((sum, part) => sum + (part.kind === 'set' ? part.set.count : 1), 0)
    if (count > MAX_FANOUT_HOSTS) refuse(`these host words select ${count} hosts; the limit is ${MAX_FANOUT_HOSTS}`)
  }
  return { include, leaveOut }
}

export interface Known {
  readonly index: ContactIndex
  /** Terms of the operator's groups by name. */
  readonly groups: ReadonlyMap<string, readonly string[]>
  /** Finds the agent of an ID prefix. Throws `unknown_agent` or `ambiguous_agent`. */
  byPrefix(text: string): AgentId
}

const ID_PREFIX = new RegExp(`^[0-9a-f]{${MIN_ID_PREFIX},}$`)

type Hosts = ReadonlyMap<AgentId, SelectedHost>

const shownNames = (names: readonly string[]): string => {
  const folded = foldNodeSet(names)
  return folded.length <= MAX_SHOWN_NAMES ? folded : `${folded.slice(0, MAX_SHOWN_NAMES)}… (${names.length} names)`
}

/** A hint about a term that looks like a wildcard, which is not supported. */
export const wildcardHint = (words: readonly string[]): { readonly next?: string } =>
  words.some((word) => /[*?]/.test(word) || word === 'all')
    ? { next: "wildcards are not supported\nTry: x0x exec 'web[1-6]' -- …, or role=web for a label, or @web for a group" }
    : {}

/** One selection. Terms are resolved once, and unknown names are reported at the end. */
class Choice {
  readonly #known: Known
  readonly #groups = new Map<string, Hosts>()
  /** Unknown names by the group that contains them. The key '' has terms of the selection itself. */
  readonly #unknown = new Map<string, string[]>()
  #prefixes = 0
  #steps = 0

  constructor(known: Known) {
    this.#known = known
  }

  /** `within` is the group of these terms, or ''. */
  hostsOf({ include, leaveOut }: HostExpression, within: string): Hosts {
    const hosts = new Map<AgentId, SelectedHost>()
    for (const part of include)
      for (const host of this.#members(part, within, false)) if (!hosts.has(host.agent_id)) hosts.set(host.agent_id, host)
    for (const part of leaveOut) for (const { agent_id } of this.#members(part, within, true)) hosts.delete(agent_id)
    return hosts
  }

  /** Throws for unknown names, because a mistyped host must not change the selection silently. */
  refuseUnknown(): void {
    const [first] = this.#unknown
    if (first === undefined) return
    const names = [...this.#unknown.values()].flat()
    const known = this.#known.index.contacts.map(({ name }) => name)
    const meant = names.length > 1 ? '' : didYouMean(names[0]!, known)
    const said = [...this.#unknown].map(([group, some]) => `${shownNames(some)}${group === '' ? '' : ` (of @${group})`}`)
    const shown = said.length > 3 ? `${said.slice(0, 3).join(', ')} and names from ${said.length - 3} more groups` : said.join(', ')
    throw new AppError('unknown_agent', `no contact matches ${shown} (unknown_agent)${meant}`, {
      data: { unknown: shownNames(names), ...wildcardHint(names) },
    })
  }

  *#members(part: HostPart, within: string, leftOut: boolean): Iterable<SelectedHost> {
    for (const host of this.#found(part, within, leftOut)) {
      if (++this.#steps > MAX_CHOICE_STEPS) throw new AppError('bad_request', 'these host words and their groups select too many hosts')
      yield host
    }
  }

  #found(part: HostPart, within: string, leftOut: boolean): Iterable<SelectedHost> {
    switch (part.kind) {
      case 'one':
        return this.#one(part.text, within)
      case 'set':
        return expandNodeSet(part.set).flatMap((name) => this.#named(name, within))
      case 'group':
        return this.#group(part.name, within).values()
      case 'label':
        return this.#labelled(part, within, leftOut)
    }
  }

  #one(text: string, within: string): readonly SelectedHost[] {
    const { index } = this.#known
    if (isHexId(text)) return [this.#hostOf(text)]
    if (index.named(text) !== undefined || !ID_PREFIX.test(text)) return this.#named(text, within)
    if (++this.#prefixes > MAX_ID_PREFIXES)
      throw new AppError('bad_request', `at most ${MAX_ID_PREFIXES} hosts may be given by an ID prefix; use names or whole IDs`)
    return [this.#hostOf(this.#known.byPrefix(text))]
  }

  #named(name: string, within: string): readonly SelectedHost[] {
    const contact = this.#known.index.named(name)
    if (contact !== undefined) return [this.#hostOf(contact.agent_id)]
    const names = this.#unknown.get(within)
    if (names === undefined) this.#unknown.set(within, [name])
    else names.push(name)
    return []
  }

  #hostOf(agent_id: AgentId): SelectedHost {
    const contact = this.#known.index.withId(agent_id)
    if (contact === undefined) return { host: agent_id, agent_id, labels: NO_LABELS, trust: null }
    return { host: contact.name, agent_id, labels: contact.labels, trust: contact.trust }
  }

  #group(name: string, within: string): Hosts {
    const before = this.#groups.get(name)
    if (before !== undefined) return before
    const words = this.#known.groups.get(name)
    if (words === undefined) {
      const meant = didYouMean(
        `@${name}`,
        [...this.#known.groups.keys()].map((known) => `@${known}`),
      )
      throw new AppError('unknown_agent', `unknown group @${name}${of(within)}${meant}`, {
        data: {
          next: 'x0xd reads groups.toml in the data directory when it starts\nTry: add the group, then x0xd --check and x0xd --replace',
        },
      })
    }
    const hosts: Hosts = words.length === 0 ? new Map() : this.hostsOf(parseHostExpression(words), name)
    this.#groups.set(name, hosts)
    return hosts
  }

  /** A left-out value may be unknown if its key exists. An unknown key is an error, because a typing mistake would leave out no host. */
  #labelled({ key, value }: { key: string; value: string }, within: string, leftOut: boolean): readonly SelectedHost[] {
    const { index } = this.#known
    const values = index.labelled(key)
    const having = values?.get(value) ?? []
    if (having.length === 0 && !(leftOut && values !== undefined)) {
      const meant = didYouMean(`${key}=${value}`, index.labels())
      throw new AppError('unknown_agent', `no contact has the label ${key}=${value}${of(within)}${meant}`, {
        data: { next: `Try: x0x contacts label NAME ${key}=${value}` },
      })
    }
    return having.map(({ agent_id }) => this.#hostOf(agent_id))
  }
}

const of = (group: string): string => (group === '' ? '' : ` (of @${group})`)

/**
 * Selects hosts in the order of the terms, each agent once. Only the operator's contacts, labels and groups select hosts, never a peer's
 * claims. Throws `bad_request` for invalid terms or too many hosts, `unknown_agent` for an unknown name, label or group, `ambiguous_agent`,
 * and `no_hosts` for an empty selection.
 */
export const selectHosts = (words: readonly string[], known: Known): SelectedHost[] => {
  const choice = new Choice(known)
  const hosts = choice.hostsOf(parseHostExpression(words), '')
  choice.refuseUnknown()
  if (hosts.size === 0)
    throw new AppError('no_hosts', 'no host is left: all are excluded, or the group is empty', {
      data: { next: 'See: x0x contacts select HOST...' },
    })
  if (hosts.size > MAX_FANOUT_HOSTS)
    throw new AppError('bad_request', `these host words select ${hosts.size} hosts; the limit is ${MAX_FANOUT_HOSTS}`)
  return [...hosts.values()]
}

export const groupsByName = (groups: Iterable<{ readonly name: string; readonly words: readonly string[] }>): Known['groups'] =>
  new Map([...groups].map(({ name, words }) => [name, words]))
