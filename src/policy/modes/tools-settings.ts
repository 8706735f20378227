import type { ModeOverride } from '../../protocol/desk.ts'
import { ASKS, ASK_FALLBACKS, SECURITIES } from '../../protocol/question.ts'
import type { LocalDoor } from '../../protocol/reasons.ts'
import type { AlwaysAskRule } from '../approval/ask-rules.ts'
import type { SandboxSettings } from '../sandbox/sandbox-settings.ts'
import { DEFAULT_SETTINGS, type ExecSettings, type Host, NO_SETTINGS, type SettingPlaces } from './settings.ts'

/** What one table says of where commands run. */
export interface ModeTable extends ExecSettings {
  /** Hosts that a call may choose; null: it does not say. */
  readonly allowed_hosts: readonly Host[] | null
}

/** `[tools.exec]` and `[[agents.list]]` of a configuration. */
export interface ToolsSettings {
  readonly defaults: ModeTable
  /** By the name that an agent gives itself. */
  readonly agents: Readonly<Record<string, ModeTable>>
  readonly sandbox: SandboxSettings
  /** Commands that need a human each time, in the order of the file. */
  readonly always_ask: readonly AlwaysAskRule[]
}

/** Above what is set beside it: on this host, as far as its configuration goes. Whom to ask stays as it is, is always asked, or is not. */
const ELEVATED_ASK = { on: null, ask: 'always', full: 'off' } as const

/** What a human has set for a session, as settings. */
export const settingsOf = (override: ModeOverride | null): ExecSettings => {
  if (override === null) return NO_SETTINGS
  const { host, security, ask, node, elevated } = override
  if (elevated === null) return { host, security, ask, ask_fallback: null, node }
  return { host: 'gateway', security: 'full', ask: ELEVATED_ASK[elevated] ?? ask, ask_fallback: null, node }
}

const SET_KEYS = ['host', 'security', 'ask', 'node'] as const

/** What humans have set in several places, as one: each setting by itself, from the first place that says it. Null: none says anything. */
export const together = (...places: readonly (ModeOverride | null)[]): ModeOverride | null => {
  const all = places.map(settingsOf)
  const first = <K extends (typeof SET_KEYS)[number]>(key: K): ExecSettings[K] | null => all.find((one) => one[key] !== null)?.[key] ?? null
  const override = { host: first('host'), security: first('security'), ask: first('ask'), node: first('node'), elevated: null }
  return SET_KEYS.some((key) => override[key] !== null) ? override : null
}

const ownOf = (agents: ToolsSettings['agents'], label: string): ModeTable | null =>
  Object.hasOwn(agents, label) ? (agents[label] ?? null) : null

/** Of a row only what is stricter than the file's own word. */
const narrowed = (row: ModeTable, { security, ask, ask_fallback }: ModeTable): ModeTable => {
  const own = { ...DEFAULT_SETTINGS, ...(security && { security }), ...(ask && { ask }), ...(ask_fallback && { ask_fallback }) }
  const stricter = <T>(order: readonly T[], wish: T | null, is: T): T | null =>
    wish !== null && order.indexOf(wish) < order.indexOf(is) ? wish : null
  return {
    ...NO_SETTINGS,
    security: row.security === 'deny' || security !== null ? stricter(SECURITIES, row.security, security ?? 'full') : null,
    ask: stricter(ASKS, row.ask, own.ask),
    ask_fallback: stricter(ASK_FALLBACKS, row.ask_fallback, own.ask_fallback),
    allowed_hosts: null,
  }
}

/** The label of a caller is given by whoever started its server; elsewhere callers name themselves as they like. */
export const isGivenLabel = (door: LocalDoor): boolean => door === 'mcp'

/** The places that say where a run of this agent goes, but for the call itself. */
export const placesOf = (
  tools: ToolsSettings,
  label: string,
  override: ModeOverride | null,
  isGiven = true,
): Omit<SettingPlaces, 'parameter'> => {
  const row = ownOf(tools.agents, label)
  const agent = row === null || isGiven ? row : narrowed(row, tools.defaults)
  return {
    session: settingsOf(override),
    agent: agent ?? NO_SETTINGS,
    global: tools.defaults,
    allowed_hosts: agent?.allowed_hosts ?? tools.defaults.allowed_hosts,
  }
}
