import { BoundedMap } from '../../base/bounded-collections.ts'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { Snapshot } from '../../executor-api/snapshot.ts'
import { equalBytes } from '../../identity/hash.ts'
import { pieceHashes } from '../../identity/piece-hashes.ts'
import { ContactIndex } from '../../protocol/hosts/contact-index.ts'
import { groupsByName, selectHosts } from '../../protocol/hosts/select-hosts.ts'
import { type AgentId, type RequestId, fromHex, isHexId } from '../../protocol/ids.ts'
import { type Sent, any, count, either, flag, optional, orNull, record, table, text, texts } from '../../protocol/json-table.ts'
import { MAX_FANOUTS } from '../../protocol/limits/fleet.ts'
import { MIN_ID_PREFIX } from '../../protocol/limits/wire.ts'
import { fromBase64 } from '../../protocol/text.ts'
import { type ExecRequest, stdinPieces } from '../../protocol/wire/exec.ts'
import type { ExecTerminalRequest } from '../../protocol/wire/terminal.ts'
import type { Contact } from '../../trust/contact.ts'
import { parseBody } from '../json-body.ts'

/** The Request to sign, as far as a request object describes it. */
export interface RequestToSign extends Pick<ExecRequest, 'request_id' | 'to_agent' | 'argv' | 'stdin' | 'timeout_ms' | 'cwd' | 'clamp'> {
  /** Null if the run ends with its requester. */
  readonly detach: { readonly lifetime_ms: number | null; readonly keep_bytes: number | null } | null
  /** Null for a run on pipes. */
  readonly terminal: Pick<ExecTerminalRequest, 'columns' | 'rows' | 'term'> | null
}

/** Agents that the field `agent` can name. */
export interface ResolvableAgents {
  readonly own: AgentId
  readonly contacts: readonly Pick<Contact, 'name' | 'agent_id'>[]
}

const DETACH = { lifetime_ms: optional(orNull(count)), keep_bytes: optional(orNull(count)) }

/** Fields of a command in an operator proof. */
export const COMMAND_FIELDS = {
  argv: texts,
  stdin_b64: optional(text),
  stdin_len: optional(count),
  stdin_sha256: optional(texts),
  timeout_ms: optional(count),
  cwd: optional(text),
  clamp: optional(flag),
  detach: optional(either(flag, record(DETACH))),
  terminal: optional(record({ columns: count, rows: count, term: text })),
}

/** Fields of a request object, as in `POST /exec/run` and `POST /exec/terminal`. */
const REQUEST_FIELDS = {
  agent_id: optional(text),
  agent: optional(text),
  ...COMMAND_FIELDS,
  request_id: optional(text),
  /** Unsigned, because only this daemon uses it. */
  session: optional(any()),
}
export const REQUEST_KEYS = Object.keys(REQUEST_FIELDS)

/**
 * Compares every field of the request object that the operator proved with the Request to sign, so that the network process cannot change
 * it. Throws `operator_proof_required` for a difference and `bad_request` for an invalid object.
 */
export const checkProvenRequest = (proven: Uint8Array, toSign: RequestToSign, known: ResolvableAgents): void => {
  const request = parseBody(proven, REQUEST_FIELDS)
  const different = [
    ...(agentOf(request, known) === toSign.to_agent ? [] : ['agent']),
    ...differencesOf(commandOf(request), toSign),
    ...([undefined, toSign.request_id].includes(request.request_id) ? [] : ['request_id']),
  ]
  if (different.length > 0) throw refused(`the operator proved another request: ${different.join(', ')} differ`)
}

/** The agent that `agent` or `agent_id` names. */
const agentOf = ({ agent_id, agent }: Sent<typeof REQUEST_FIELDS>, known: ResolvableAgents): AgentId => {
  const named = agent_id ?? agent
  if (named === undefined || (agent_id !== undefined && agent !== undefined))
    throw new AppError('bad_request', 'agent_id, agent: name the agent with exactly one of the two')
  if (agent_id !== undefined && !isHexId(agent_id)) throw new AppError('bad_request', 'agent_id: expected 64 lower-case hex digits')
  return agentNamed(named, known)
}

/**
 * Resolves a name like a person would. For unlisted agents only a whole ID counts, because anybody can create an ID with a given prefix.
 */
export const agentNamed = (text: string, { own, contacts }: ResolvableAgents): AgentId => {
  if (isHexId(text)) return text
  const byName = contacts.filter((contact) => contact.name === text).map(({ agent_id }) => agent_id)
  const [agentId, ...others] = byName.length > 0 ? byName : byPrefix(text, [own, ...contacts.map(({ agent_id }) => agent_id)])
  if (agentId !== undefined && others.length === 0) return agentId
  const found = agentId === undefined ? 'is neither a contact nor the beginning of the id of one' : 'could be more than one contact'
  throw refused(`the operator proved a request to ${JSON.stringify(text)}, which ${found}: give the whole id of the agent`)
}

const byPrefix = (prefix: string, ids: readonly AgentId[]): AgentId[] =>
  prefix.length < MIN_ID_PREFIX ? [] : [...new Set(ids)].filter((id) => id.startsWith(prefix))

/** A command without its target. */
export type ProvenCommand = Omit<RequestToSign, 'request_id' | 'to_agent' | 'argv'> & { readonly argv: readonly string[] }

export const commandOf = (command: Sent<typeof COMMAND_FIELDS>): ProvenCommand => ({
  argv: command.argv,
  stdin: stdinOf(command),
  timeout_ms: command.timeout_ms ?? null,
  cwd: command.cwd ?? null,
  clamp: command.clamp ?? false,
  detach: detachOf(command.detach),
  terminal: command.terminal ?? null,
})

const detachOf = (detach: Sent<typeof COMMAND_FIELDS>['detach'] = false): RequestToSign['detach'] => {
  if (detach === false) return null
  const { lifetime_ms = null, keep_bytes = null } = detach === true ? {} : detach
  return { lifetime_ms, keep_bytes }
}

/** Fields that differ. */
export const differencesOf = (proven: ProvenCommand, toSign: ProvenCommand): string[] => {
  const { argv } = toSign
  const same: Record<string, boolean> = {
    argv: proven.argv.length === argv.length && proven.argv.every((token, index) => token === argv[index]),
    stdin: isSameStdin(proven.stdin, toSign.stdin),
    timeout_ms: proven.timeout_ms === toSign.timeout_ms,
    cwd: proven.cwd === toSign.cwd,
    clamp: proven.clamp === toSign.clamp,
    detach: isSameDetach(proven.detach, toSign.detach),
    terminal: isSameTerminal(proven.terminal, toSign.terminal),
  }
  return Object.keys(same).filter((key) => !same[key])
}

const isSameDetach = (proven: RequestToSign['detach'], toSign: RequestToSign['detach']): boolean =>
  proven === null || toSign === null
    ? proven === toSign
    : proven.lifetime_ms === toSign.lifetime_ms && proven.keep_bytes === toSign.keep_bytes

const isSameTerminal = (proven: RequestToSign['terminal'], toSign: RequestToSign['terminal']): boolean =>
  proven === null || toSign === null
    ? proven === toSign
    : proven.columns === toSign.columns && proven.rows === toSign.rows && proven.term === toSign.term

/** Stdin that the object describes, or null. */
const stdinOf = ({ stdin_b64: whole, stdin_len: len, stdin_sha256: hashes }: Sent<typeof COMMAND_FIELDS>): RequestToSign['stdin'] => {
  if (whole === undefined && len === undefined && hashes === undefined) return null
  if (whole !== undefined && len === undefined && hashes === undefined) {
    const bytes = fromBase64(whole)
    if (bytes === null) throw new AppError('bad_request', 'stdin_b64: not base64')
    return { len: bytes.length, pieces: pieceHashes(bytes) }
  }
  if (whole !== undefined || len === undefined || hashes?.length !== stdinPieces(len) || !hashes.every(isHexId))
    throw new AppError(
      'bad_request',
      'stdin_b64 alone, or stdin_len together with stdin_sha256: 64 lower-case hex digits for each MiB of it or part of one',
    )
  return { len, pieces: hashes.map(fromHex) }
}

const isSameStdin = (proven: RequestToSign['stdin'], toSign: RequestToSign['stdin']): boolean => {
  if (proven === null && toSign !== null)
    throw refused('the operator proved a request without stdin, or that does not say which: give stdin_len and stdin_sha256 in it')
  if (proven === null || toSign === null) return proven === toSign
  return proven.len === toSign.len && proven.pieces.every((piece, index) => equalBytes(piece, toSign.pieces[index]!))
}

export const refused = (message: string): AppError => new AppError('operator_proof_required', message)

/** How long a proven fan-out may reach late hosts, unless it has an earlier deadline. */
export const PROVEN_FANOUT_MS = 24 * 60 * 60 * 1000

const { argv, stdin_b64, timeout_ms, clamp, cwd } = COMMAND_FIELDS
/** Fields of a fan-out, as in `POST /exec/fanout`. */
const FANOUT_FIELDS = {
  hosts: texts,
  argv,
  stdin_b64,
  timeout_ms,
  clamp,
  cwd,
  fanout_id: optional(text),
  request_ids: optional(table),
  deadline_ms: optional(count),
  // Unsigned, because these only limit when hosts are asked and which clients are informed.
  parallel: optional(any()),
  canary: optional(any()),
  max_failures: optional(any()),
  session: optional(any()),
}

/** Contacts and groups that host terms can name. */
export type ResolvableHosts = Pick<Snapshot, 'contacts' | 'groups'> & { readonly own: AgentId }

interface ProvenFanout {
  readonly command: ProvenCommand
  /** Selected hosts that were not asked yet. */
  readonly unasked: Set<AgentId>
  readonly requestIds: ReadonlyMap<string, unknown>
  /** Monotonic time. */
  readonly until: number
}

/** Fan-outs that an operator proved. Each covers one Request per host. */
export class AuthorizedFanouts {
  readonly #clock: Clock
  /** Oldest first. A fan-out above the limit replaces the oldest, whose remaining hosts are not asked. */
  readonly #fanouts = new BoundedMap<RequestId, ProvenFanout>({ max: MAX_FANOUTS })

  constructor(deps: { readonly clock: Clock }) {
    this.#clock = deps.clock
  }

  /**
   * Throws `bad_request` for an invalid object, `operator_proof_required` for a prefix of an unlisted ID, `conflict`, and `selectHosts`
   * errors.
   */
  add(id: RequestId, proven: Uint8Array, known: ResolvableHosts): void {
    if (this.#fanouts.has(id)) throw new AppError('conflict', 'fanout_id: a fan-out with this ID is running')
    const fanout = parseBody(proven, FANOUT_FIELDS)
    if (fanout.fanout_id !== undefined && fanout.fanout_id !== id) throw refused('the operator proved another fan-out')
    const unasked = new Set(hostsOf(fanout.hosts, known))
    const lasts = Math.min(fanout.deadline_ms ?? PROVEN_FANOUT_MS, PROVEN_FANOUT_MS)
    this.#fanouts.set(id, {
      command: commandOf(fanout),
      unasked,
      requestIds: new Map(Object.entries(fanout.request_ids ?? {})),
      until: this.#clock.monotonic() + lasts,
    })
  }

  has(id: RequestId): boolean {
    return this.#fanouts.has(id)
  }

  over(id: RequestId): void {
    this.#fanouts.delete(id)
  }

  /** Uses up the Request to this host. Throws `operator_proof_required` if the proof does not cover it. */
  spend(id: RequestId, toSign: RequestToSign): void {
    const fanout = this.#fanouts.get(id)!
    if (this.#clock.monotonic() > fanout.until) throw refused("the operator's fan-out has expired")
    if (!fanout.unasked.has(toSign.to_agent))
      throw refused("the operator's fan-out does not include this host, or the host was asked already")
    const chosen = fanout.requestIds.get(toSign.to_agent)
    const different = [
      ...differencesOf(fanout.command, toSign),
      ...(chosen === undefined || chosen === toSign.request_id ? [] : ['request_ids']),
    ]
    if (different.length > 0) throw refused(`the operator proved another fan-out: ${different.join(', ')} differ`)
    fanout.unasked.delete(toSign.to_agent)
  }
}

/** Resolves host terms with the executor's own data. */
const hostsOf = (words: readonly string[], { own, contacts, groups }: ResolvableHosts): AgentId[] => {
  const known = {
    index: new ContactIndex(contacts),
    groups: groupsByName(groups),
    byPrefix: (text: string) => agentNamed(text, { own, contacts }),
  }
  return selectHosts(words, known).map(({ agent_id }) => agent_id)
}
