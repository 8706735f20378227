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

/** An agent of the mesh, as this host's daemon knows it. */
export interface KnownNode {
  readonly agent_id: string
  /** What the operator calls it; null: it is no contact, and what it says of itself counts for nothing. */
  readonly contact: string | null
  /** What it calls itself. */
  readonly names: readonly string[]
  /** Where it is reached, such as `/ip4/192.0.2.7/tcp/5483`. */
  readonly addresses: readonly string[]
}

/** The one that was meant. */
export interface SelectedNode {
  readonly agent_id: string
  /** The contact's name; null where it has none. */
  readonly name: string | null
}

const HEX_PREFIX = /^[0-9a-f]{1,64}$/

/** One text for names that a person takes for the same: case, blanks, `_`, `.` and `-` make no difference. */
export const normalName = (name: string): string =>
  name
    .normalize('NFKC')
    .toLowerCase()
    .trim()
    .replaceAll(/[\s_.-]+/gu, '-')

const isAddress = (text: string): boolean => text.startsWith('/') || isIPv4(text) || isIPv6(text) || /^[^/]+:\d+$/.test(text)

/** `/ip4/192.0.2.7/tcp/5483` is also `192.0.2.7` and `192.0.2.7:5483`. */
const isAt = (address: string, text: string): boolean => {
  const [, , host, , port] = address.split('/')
  return text === address || text === host || text === `${host}:${port}` || text === `[${host}]:${port}`
}

/** By what the operator calls them: as it is written, else however it is. */
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

/** Each step answers whoever it fits; the first that fits anybody decides. Strangers have an id, and no more: names and addresses anybody can claim. */
const fitting = (text: string, nodes: readonly KnownNode[]): KnownNode[] => {
  const contacts = nodes.filter(({ contact }) => contact !== null)
  const isPrefix = text.length >= MIN_ID_PREFIX && HEX_PREFIX.test(text)
  const ofPrefix = (from: readonly KnownNode[]): KnownNode[] => (isPrefix ? from.filter(({ agent_id }) => agent_id.startsWith(text)) : [])
  const steps = [
    () => byName(contacts, text),
    () => (isAddress(text) ? contacts.filter(({ addresses }) => addresses.some((address) => isAt(address, text))) : []),
    () => ofPrefix(contacts),
    // Anybody can make an id that begins as a contact's does.
    () => ofPrefix(nodes),
    // A contact may call itself as another one is called, or after its address or its id.
    () => byClaim(contacts, text),
  ]
  for (const step of steps) {
    const found = [...new Map(step().map((node) => [node.agent_id, node])).values()]
    if (found.length > 0) return found
  }
  return []
}

/**
 * The node that a text means: its whole id; else the name of a contact, however it is written; else the address at which a contact is
 * reached; else the beginning of an id, of contacts before others; else what a contact calls itself. Throws `unknown_agent`, or
 * `ambiguous_agent` with `data.candidates`.
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

/** Who knows the agents of the mesh. */
export interface NodeDirectory {
  /** Throws why they are not known, such as `daemon_unreachable`. */
  nodes(signal: AbortSignal | null): Promise<readonly KnownNode[]>
}

export interface EngineModesDeps {
  readonly tools: ToolsSettings
  readonly desk: DeskLink
  /** Null: there is no mesh. */
  readonly nodes: NodeDirectory | null
  /** Directories that hold secrets of ours, beside those of the home. */
  readonly secrets: readonly string[]
  /** The id of the console that this is the engine of. */
  readonly console?: string
  readonly log?: Logger
}

/** Where one run goes, and what is in force for it. */
export interface ExecTarget {
  readonly exec: ResolvedExec
  readonly ranOn: RanOnJson
  /** Where `host` is `node`. */
  readonly node: SelectedNode | null
}

const notOpen = (key: string, asked: string, allowed: readonly string[]): AppError =>
  new AppError(
    'command_denied',
    `${key}: ${JSON.stringify(asked)} is not open to callers here; open: ${allowed.join(', ')} (tools.exec in the configuration, or a human by x0x exec-mode)`,
    { data: { key, asked, allowed } },
  )

/** A session of a target is one whose every call says `node`; one that says otherwise is refused, and not brought there all the same. */
export const wishFor = (target: string | null, wish: ExecPreference | null): ExecPreference | null => {
  if (target === null) return wish
  const own = { host: 'node' as const, node: target }
  for (const key of ['host', 'node'] as const) {
    const asked = wish?.[key] ?? null
    if (asked !== null && asked !== own[key])
      throw new AppError(
        'bad_request',
        `${key}: ${JSON.stringify(asked)} is another place than the target ${JSON.stringify(target)} of this session; leave ${key} out, or open a session without a target`,
        { data: { key, asked, target } },
      )
  }
  return { security: null, ask: null, ...wish, ...own }
}

/** What the desk knows a caller of one console by. Its name is what it says of itself, at another console somebody else's. */
export const consoleSession = (console: string, name: string): string => `${console} ${name}`

/** Where commands run, how far they may go and whom to ask, where a configuration says so. */
export class EngineModes {
  readonly desk: DeskLink
  readonly tools: ToolsSettings
  /** Answers of the desk that were taken. */
  readonly spent = new SpentAnswers()
  readonly images: ImageStore
  readonly #deps: EngineModesDeps

  constructor(deps: EngineModesDeps) {
    this.desk = deps.desk
    this.tools = deps.tools
    this.#deps = deps
    this.images = new ImageStore(deps.log)
  }

  /** What no sandbox shows, as it stands now: a data directory may be made, or a link be set, while this engine runs. */
  get sandboxPlace(): SandboxPath {
    return sandboxPath(this.#deps.secrets)
  }

  /** Throws `command_denied` for a wish that is not open, and why a node is not found. */
  async place({ session_id, client_name, door }: LocalKey, wish: ExecPreference | null, signal: AbortSignal | null): Promise<ExecTarget> {
    const parameter = wish === null ? NO_SETTINGS : { ...NO_SETTINGS, ...wish }
    const isGiven = isGivenLabel(door)
    const { console } = this.#deps
    const own = door === 'console' && console !== undefined ? consoleSession(console, client_name) : null
    const override = await this.desk.override(session_id, isGiven ? client_name : own)
    // What is set for a name that anybody may give holds for whoever gives it, as far as it narrows.
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
      throw new AppError('unsupported_capability', 'host: there is no mesh here; security.allow_targets grants it', {
        data: { capability: 'target' },
      })
    return selectNode(text, await nodes.nodes(signal))
  }
}
