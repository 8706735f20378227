import { isIPv4, isIPv6 } from 'node:net'
import { hostname } from 'node:os'
import { AppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { DeskLink } from '../../desk/desk-link.ts'
import type { LocalKey } from '../../journal/events.ts'
import { SpentAnswers } from '../../policy/approval/approval.ts'
import {
  NO_SETTINGS,
  type ResolvedExec,
  type ToolsSettings,
  isGivenLabel,
  narrowedBy,
  placesOf,
  resolveExec,
  settingsOf,
} from '../../policy/modes.ts'
import { type SandboxPath, sandboxPath } from '../../policy/sandbox/sandbox-grant.ts'
import { ImageStore } from '../../process/sandbox/images.ts'
import type { RanOnJson, ExecPreference } from '../../protocol/api/exec-target.ts'
import { isHexId } from '../../protocol/ids.ts'
import { MIN_ID_PREFIX } from '../../protocol/limits/wire.ts'

/** An agent of the mesh that the daemon knows. */
export interface KnownNode {
  readonly agent_id: string
  /** The contact's name, or null if the agent is not a contact. Then its own names do not count. */
  readonly contact: string | null
  /** Names that the agent gives itself. */
  readonly names: readonly string[]
  /** Addresses such as `/ip4/192.0.2.7/tcp/5483`. */
  readonly addresses: readonly string[]
}

export interface SelectedNode {
  readonly agent_id: string
  /** The contact's name, or null if it is not a contact. */
  readonly name: string | null
}

const HEX_PREFIX = /^[0-9a-f]{1,64}$/

/** Normalizes names that a person confuses. Case, blanks, `_`, `.` and `-` do not matter. */
export const normalName = (name: string): string =>
  name
    .normalize('NFKC')
    .toLowerCase()
    .trim()
    .replaceAll(/[\s_.-]+/gu, '-')

const isAddress = (text: string): boolean => text.startsWith('/') || isIPv4(text) || isIPv6(text) || /^[^/]+:\d+$/.test(text)

/** `/ip4/192.0.2.7/tcp/5483` also matches `192.0.2.7` and `192.0.2.7:5483`. */
const isAt = (address: string, text: string): boolean => {
  const [, , host, , port] = address.split('/')
  return text === address || text === host || text === `${host}:${port}` || text === `[${host}]:${port}`
}

/** Finds contacts by name, with an exact match before a normalized one. */
const byName = (contacts: readonly KnownNode[], text: string): KnownNode[] => {
  const wanted = normalName(text)
  const exact = contacts.filter(({ contact }) => contact === text)
  if (exact.length > 0 || wanted === '') return exact
  return contacts.filter(({ contact }) => normalName(contact ?? '') === wanted)
}

const byClaim = (contacts: readonly KnownNode[], text: string): KnownNode[] => {
  const wanted = normalName(text)
  return wanted === '' ? [] : contacts.filter(({ names }) => names.some((name) => normalName(name) === wanted))
}

/** The first step that finds an agent decides. Only IDs of unlisted agents count, because anybody can claim a name or address. */
const fitting = (text: string, nodes: readonly KnownNode[]): KnownNode[] => {
  const contacts = nodes.filter(({ contact }) => contact !== null)
  const isPrefix = text.length >= MIN_ID_PREFIX && HEX_PREFIX.test(text)
  const ofPrefix = (from: readonly KnownNode[]): KnownNode[] => (isPrefix ? from.filter(({ agent_id }) => agent_id.startsWith(text)) : [])
  const steps = [
    () => byName(contacts, text),
    () => (isAddress(text) ? contacts.filter(({ addresses }) => addresses.some((address) => isAt(address, text))) : []),
    () => ofPrefix(contacts),
    // Tried after contacts, because anybody can create an ID with a given prefix.
    () => ofPrefix(nodes),
    // A contact may give itself the name, address or ID of another one, so this comes last.
    () => byClaim(contacts, text),
  ]
  for (const step of steps) {
    const found = [...new Map(step().map((node) => [node.agent_id, node])).values()]
    if (found.length > 0) return found
  }
  return []
}

/**
 * Resolves a text to an agent. It tries, in this order, a whole ID, a contact's name, a contact's address, the prefix of a contact's ID,
 * the prefix of another ID, and the name that a contact gives itself. Throws `unknown_agent`, or `ambiguous_agent` with `data.candidates`.
 */
export const selectNode = (text: string, nodes: readonly KnownNode[]): SelectedNode => {
  if (isHexId(text)) return { agent_id: text, name: nodes.find(({ agent_id }) => agent_id === text)?.contact ?? null }
  const found = fitting(text, nodes)
  const [first, ...others] = found
  if (first === undefined)
    throw new AppError(
      'unknown_agent',
      `node: no contact has the name or the address ${JSON.stringify(text)}, and no id begins so (at least ${MIN_ID_PREFIX} characters); x0x contacts list names them`,
    )
  if (others.length === 0) return { agent_id: first.agent_id, name: first.contact }
  const candidates = found.map(({ agent_id, contact }) => ({ agent_id, name: contact }))
  const list = candidates.map(({ agent_id, name }) => (name === null ? agent_id : `${name} (${agent_id})`)).join(', ')
  throw new AppError('ambiguous_agent', `node: ${JSON.stringify(text)} could be ${list}; say which by its id`, { data: { candidates } })
}

export interface NodeDirectory {
  /** Throws why the agents are not known, such as `daemon_unreachable`. */
  nodes(signal: AbortSignal | null): Promise<readonly KnownNode[]>
}

export interface EngineModesDeps {
  readonly tools: ToolsSettings
  readonly desk: DeskLink
  /** Null without a mesh. */
  readonly nodes: NodeDirectory | null
  /** Directories with secrets of x0x, besides those in the home directory. */
  readonly secrets: readonly string[]
  /** ID of the console that owns this engine. */
  readonly console?: string
  readonly log?: Logger
}

/** Destination of a run, and the modes in force for it. */
export interface ExecTarget {
  readonly exec: ResolvedExec
  readonly ranOn: RanOnJson
  /** Set if `host` is `node`. */
  readonly node: SelectedNode | null
}

const notOpen = (key: string, asked: string, allowed: readonly string[]): AppError =>
  new AppError(
    'command_denied',
    `${key}: clients cannot choose ${JSON.stringify(asked)}; allowed: ${allowed.join(', ')} (set tools.exec in the configuration, or use x0x exec-mode)`,
    { data: { key, asked, allowed } },
  )

/** Every call of a session with a target means that target. Another host or node is refused. */
export const wishFor = (target: string | null, wish: ExecPreference | null): ExecPreference | null => {
  if (target === null) return wish
  const own = { host: 'node' as const, node: target }
  for (const key of ['host', 'node'] as const) {
    const asked = wish?.[key] ?? null
    if (asked !== null && asked !== own[key])
      throw new AppError(
        'bad_request',
        `${key}: ${JSON.stringify(asked)} differs from the target ${JSON.stringify(target)} of this session; leave ${key} out, or open a session without a target`,
        { data: { key, asked, target } },
      )
  }
  return { security: null, ask: null, ...wish, ...own }
}

/** Key under which the approval service knows a console client. It contains the console's ID, because client names are free text. */
export const consoleSession = (console: string, name: string): string => `${console} ${name}`

/** Resolves from the configuration the host of commands, their modes and the need for approvers. */
export class EngineModes {
  readonly desk: DeskLink
  readonly tools: ToolsSettings
  /** Decisions of the approval service that were used. */
  readonly spent = new SpentAnswers()
  readonly images: ImageStore
  readonly #deps: EngineModesDeps

  constructor(deps: EngineModesDeps) {
    this.desk = deps.desk
    this.tools = deps.tools
    this.#deps = deps
    this.images = new ImageStore(deps.log)
  }

  /** Paths that no sandbox shows, looked up for each run because data directories and links can appear while the engine runs. */
  get sandboxPlace(): SandboxPath {
    return sandboxPath(this.#deps.secrets)
  }

  /** Throws `command_denied` for a preference that is not allowed, and why a node was not found. */
  async place({ session_id, client_name, door }: LocalKey, wish: ExecPreference | null, signal: AbortSignal | null): Promise<ExecTarget> {
    const parameter = wish === null ? NO_SETTINGS : { ...NO_SETTINGS, ...wish }
    const isGiven = isGivenLabel(door)
    const { console } = this.#deps
    const own = door === 'console' && console !== undefined ? consoleSession(console, client_name) : null
    const override = await this.desk.override(session_id, isGiven ? client_name : own)
    // A setting for a self-chosen client name only narrows, because anybody can choose that name.
    const claimed = isGiven ? null : await this.desk.override(client_name, client_name)
    const found = resolveExec({ parameter, ...placesOf(this.tools, client_name, override, isGiven) })
    if (found.kind === 'refused') throw notOpen(found.key, found.asked, found.allowed)
    const resolved = narrowedBy(found, settingsOf(claimed))
    const { host } = resolved
    if (host !== 'node') return { exec: resolved, ranOn: { host, agent_id: null, name: hostname() }, node: null }
    const node = await this.#select(resolved.node, signal)
    return { exec: resolved, ranOn: { host, ...node }, node }
  }

  async #select(text: string | null, signal: AbortSignal | null): Promise<SelectedNode> {
    if (text === null)
      throw new AppError('bad_request', 'node: host = "node" needs to know which: give node, or set tools.exec.node in the configuration')
    const { nodes } = this.#deps
    if (nodes === null)
      throw new AppError('unsupported_capability', 'host: this program has no mesh; add targets to security.allow_targets', {
        data: { capability: 'target' },
      })
    return selectNode(text, await nodes.nodes(signal))
  }
}
