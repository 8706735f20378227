import type { ModeOverride } from '../protocol/desk/messages.ts'
import { ASKS, ASK_FALLBACKS, type Ask, type AskFallback, type Host, SECURITIES, type Security } from '../protocol/desk/approval-request.ts'
import type { LocalInterface } from '../protocol/reasons.ts'
import type { AlwaysAskRule } from './approval/ask-rules.ts'
import type { SandboxSettings } from './sandbox/sandbox-settings.ts'

export type { Ask, AskFallback, Host, Security } from '../protocol/desk/approval-request.ts'

/** Settings from one source, or null for a setting that it does not have. */
export interface ExecSettings {
  readonly host: Host | null
  readonly security: Security | null
  readonly ask: Ask | null
  readonly ask_fallback: AskFallback | null
  /** Name of an agent, as in `x0x exec`. */
  readonly node: string | null
}

export const NO_SETTINGS: ExecSettings = Object.freeze({ host: null, security: null, ask: null, ask_fallback: null, node: null })

/** Settings if no source has any. */
export const DEFAULT_SETTINGS = Object.freeze({
  host: 'sandbox',
  security: 'deny',
  ask: 'on-miss',
  ask_fallback: 'deny',
  node: null,
} as const satisfies { readonly [K in keyof ExecSettings]: ExecSettings[K] })

/** Default in a sandbox, where nothing of this host is at risk. */
const SANDBOX_SECURITY: Security = 'full'

const strictest = <T>(order: readonly T[], values: readonly T[]): T => order[Math.min(...values.map((value) => order.indexOf(value)))]!

export const stricterSecurity = (...values: readonly [Security, ...Security[]]): Security => strictest(SECURITIES, values)
export const stricterAsk = (...values: readonly [Ask, ...Ask[]]): Ask => strictest(ASKS, values)
export const stricterFallback = (...values: readonly [AskFallback, ...AskFallback[]]): AskFallback => strictest(ASK_FALLBACKS, values)

/** Sources of settings by priority. */
export type SettingSource = 'parameter' | 'session' | 'agent' | 'global' | 'default'

/** A preference that exceeded the configuration and was reduced. */
export interface Clamp {
  readonly key: 'security' | 'ask'
  readonly asked: string
  readonly got: string
}

/** Modes in force for one call. */
export interface ResolvedExec {
  readonly host: Host
  readonly security: Security
  readonly ask: Ask
  readonly ask_fallback: AskFallback
  readonly node: string | null
  readonly from: Readonly<Record<keyof ExecSettings, SettingSource>>
  readonly cuts: readonly Clamp[]
}

/** A preference for a host or node that the configuration does not allow clients to choose. */
export interface PreferenceRefused {
  readonly kind: 'refused'
  readonly key: 'host' | 'node'
  readonly asked: string
  readonly allowed: readonly string[]
}

export interface SettingSources {
  readonly parameter: ExecSettings
  /** Settings that a person made for the session. */
  readonly session: ExecSettings
  readonly agent: ExecSettings
  readonly global: ExecSettings
  /** Hosts that a call may choose, or null for the configured host and the sandbox. */
  readonly allowed_hosts: readonly Host[] | null
}

/** Reduces the modes in force to these settings. */
export const narrowedBy = (found: ResolvedExec, { security, ask, ask_fallback }: ExecSettings): ResolvedExec => ({
  ...found,
  security: stricterSecurity(found.security, security ?? found.security),
  ask: stricterAsk(found.ask, ask ?? found.ask),
  ask_fallback: stricterFallback(found.ask_fallback, ask_fallback ?? found.ask_fallback),
})

const SOURCES = ['session', 'agent', 'global'] as const

const configured = <K extends keyof ExecSettings>(places: SettingSources, key: K): { value: ExecSettings[K]; source: SettingSource } => {
  const source = SOURCES.find((place) => places[place][key] !== null)
  return source === undefined ? { value: DEFAULT_SETTINGS[key], source: 'default' } : { value: places[source][key], source }
}

/** Resolves each setting by priority: call, session, agent, file, default. A call can choose an allowed host and narrow the rest. */
export const resolveExec = (places: SettingSources): ({ readonly kind: 'resolved' } & ResolvedExec) | PreferenceRefused => {
  const { parameter } = places
  const host = configured(places, 'host')
  const node = configured(places, 'node')
  const ask = configured(places, 'ask')
  const fallback = configured(places, 'ask_fallback')
  const security = configured(places, 'security')
  const own = host.value ?? DEFAULT_SETTINGS.host
  const open = places.allowed_hosts ?? [own, 'sandbox' as const]
  const chosen = parameter.host ?? own
  if (parameter.host !== null && parameter.host !== own && !open.includes(parameter.host))
    return { kind: 'refused', key: 'host', asked: parameter.host, allowed: [...new Set([own, ...open])] }
  // A client that may choose the host `node` may choose any allowed agent, unless the configuration binds one.
  if (parameter.node !== null && node.value !== null && parameter.node !== node.value)
    return { kind: 'refused', key: 'node', asked: parameter.node, allowed: [node.value] }
  const base = security.source === 'default' && chosen === 'sandbox' ? SANDBOX_SECURITY : (security.value ?? DEFAULT_SETTINGS.security)
  const baseAsk = ask.value ?? DEFAULT_SETTINGS.ask
  const baseFallback = fallback.value ?? DEFAULT_SETTINGS.ask_fallback
  const narrowed = parameter.security === null ? base : stricterSecurity(parameter.security, base)
  const narrowedAsk = parameter.ask === null ? baseAsk : stricterAsk(parameter.ask, baseAsk)
  const cuts: Clamp[] = []
  if (parameter.security !== null && narrowed !== parameter.security)
    cuts.push({ key: 'security', asked: parameter.security, got: narrowed })
  if (parameter.ask !== null && narrowedAsk !== parameter.ask) cuts.push({ key: 'ask', asked: parameter.ask, got: narrowedAsk })
  const by = (key: 'host' | 'security' | 'ask' | 'node', source: SettingSource): SettingSource =>
    parameter[key] === null ? source : 'parameter'
  return {
    kind: 'resolved',
    host: chosen,
    security: narrowed,
    ask: narrowedAsk,
    ask_fallback: parameter.ask_fallback === null ? baseFallback : stricterFallback(parameter.ask_fallback, baseFallback),
    node: parameter.node ?? node.value,
    from: {
      host: by('host', host.source),
      security: by('security', security.source),
      ask: by('ask', ask.source),
      ask_fallback: parameter.ask_fallback === null ? fallback.source : 'parameter',
      node: by('node', node.source),
    },
    cuts,
  }
}

export interface ModeTable extends ExecSettings {
  /** Hosts that a call may choose, or null if the table has no such key. */
  readonly allowed_hosts: readonly Host[] | null
}

/** `[tools.exec]` and `[[agents.list]]` of a configuration. */
export interface ToolsSettings {
  readonly defaults: ModeTable
  /** By the name that a client gives itself. */
  readonly agents: Readonly<Record<string, ModeTable>>
  readonly sandbox: SandboxSettings
  /** Commands that need an approver for each run, in the order of the file. */
  readonly always_ask: readonly AlwaysAskRule[]
}

/** `ask` of an elevated session. It may exceed other settings, within the configuration of this host. Null leaves `ask` unchanged. */
const ELEVATED_ASK = { on: null, ask: 'always', full: 'off' } as const

/** Settings that a person made for a session. */
export const settingsOf = (override: ModeOverride | null): ExecSettings => {
  if (override === null) return NO_SETTINGS
  const { host, security, ask, node, elevated } = override
  if (elevated === null) return { host, security, ask, ask_fallback: null, node }
  return { host: 'gateway', security: 'full', ask: ELEVATED_ASK[elevated] ?? ask, ask_fallback: null, node }
}

const SET_KEYS = ['host', 'security', 'ask', 'node'] as const

/** Combines settings of several sources; the first source with a setting wins. Null if none has any. */
export const together = (...places: readonly (ModeOverride | null)[]): ModeOverride | null => {
  const all = places.map(settingsOf)
  const first = <K extends (typeof SET_KEYS)[number]>(key: K): ExecSettings[K] | null => all.find((one) => one[key] !== null)?.[key] ?? null
  const override = { host: first('host'), security: first('security'), ask: first('ask'), node: first('node'), elevated: null }
  return SET_KEYS.some((key) => override[key] !== null) ? override : null
}

const ownOf = (agents: ToolsSettings['agents'], label: string): ModeTable | null =>
  Object.hasOwn(agents, label) ? (agents[label] ?? null) : null

/** The settings of a row that are stricter than those of the file. */
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

/** True if the label was given when the client's server was started. Elsewhere clients choose their own labels. */
export const isGivenLabel = (door: LocalInterface): boolean => door === 'mcp'

/** The sources of settings for an agent, without those of the call. */
export const placesOf = (
  tools: ToolsSettings,
  label: string,
  override: ModeOverride | null,
  isGiven = true,
): Omit<SettingSources, 'parameter'> => {
  const row = ownOf(tools.agents, label)
  const agent = row === null || isGiven ? row : narrowed(row, tools.defaults)
  return {
    session: settingsOf(override),
    agent: agent ?? NO_SETTINGS,
    global: tools.defaults,
    allowed_hosts: agent?.allowed_hosts ?? tools.defaults.allowed_hosts,
  }
}
