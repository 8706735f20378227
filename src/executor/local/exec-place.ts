import { hostname } from 'node:os'
import { AppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { DeskLink } from '../../desk/desk-link.ts'
import type { LocalKey } from '../../journal/events.ts'
import { SpentAnswers } from '../../policy/approval/open-approval.ts'
import { NO_SETTINGS, type ResolvedExec, narrowedBy, resolveExec } from '../../policy/modes/settings.ts'
import { type ToolsSettings, isGivenLabel, placesOf, settingsOf } from '../../policy/modes/tools-settings.ts'
import { type SandboxPlace, sandboxPlace } from '../../policy/sandbox/sandbox-grant.ts'
import { ImageStore } from '../../process/sandbox/image-store.ts'
import type { RanOn, RunWish } from '../../protocol/run-place.ts'
import { type KnownNode, type SelectedNode, selectNode } from './select-node.ts'

/** Who knows the agents of the mesh. */
export interface NodeDirectory {
  /** Throws why they are not known, such as `daemon_unreachable`. */
  nodes(signal: AbortSignal | null): Promise<readonly KnownNode[]>
}

export interface EngineModesComponents {
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
export interface ExecPlace {
  readonly exec: ResolvedExec
  readonly ranOn: RanOn
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
export const wishFor = (target: string | null, wish: RunWish | null): RunWish | null => {
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
  readonly #nodes: NodeDirectory | null
  readonly #secrets: readonly string[]
  readonly #console: string | null

  constructor(components: EngineModesComponents) {
    this.desk = components.desk
    this.tools = components.tools
    this.#nodes = components.nodes
    this.#secrets = components.secrets
    this.#console = components.console ?? null
    this.images = new ImageStore(components.log)
  }

  /** What no sandbox shows, as it stands now: a data directory may be made, or a link be set, while this engine runs. */
  get sandboxPlace(): SandboxPlace {
    return sandboxPlace(this.#secrets)
  }

  /** Throws `command_denied` for a wish that is not open, and why a node is not found. */
  async place({ session_id, client_name, door }: LocalKey, wish: RunWish | null, signal: AbortSignal | null): Promise<ExecPlace> {
    const parameter = wish === null ? NO_SETTINGS : { ...NO_SETTINGS, ...wish }
    const isGiven = isGivenLabel(door)
    const own = door === 'console' && this.#console !== null ? consoleSession(this.#console, client_name) : null
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
    if (this.#nodes === null)
      throw new AppError('unsupported_capability', 'host: there is no mesh here; security.allow_targets grants it', {
        data: { capability: 'target' },
      })
    return selectNode(text, await this.#nodes.nodes(signal))
  }
}
