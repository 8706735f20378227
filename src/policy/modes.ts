import type { ModeOverride } from '../protocol/desk/messages.ts'
import { ASKS, ASK_FALLBACKS, type Ask, type AskFallback, type Host, SECURITIES, type Security } from '../protocol/desk/approval-request.ts'
import type { LocalInterface } from '../protocol/reasons.ts'
import type { AlwaysAskRule } from './approval/ask-rules.ts'
import type { SandboxSettings } from './sandbox/sandbox-settings.ts'

export type { Ask, AskFallback, Host, Security } from '../protocol/desk/approval-request.ts'

/** Settings of one place; null: that place does not say. */
export interface ExecSettings {
  readonly host: Host | null
  readonly security: Security | null
  readonly ask: Ask | null
  readonly ask_fallback: AskFallback | null
  /** As `x0x exec` names an agent. */
  readonly node: string | null
}

export const NO_SETTINGS: ExecSettings = Object.freeze({ host: null, security: null, ask: null, ask_fallback: null, node: null })

/** What holds where no place says anything. */
export const DEFAULT_SETTINGS = Object.freeze({
  host: 'sandbox',
  security: 'deny',
  ask: 'on-miss',
  ask_fallback: 'deny',
  node: null,
} as const satisfies { readonly [K in keyof ExecSettings]: ExecSettings[K] })

/** In a sandbox nothing of this host is at stake, so that a file which says nothing lets it go on there. */
const SANDBOX_SECURITY: Security = 'full'

const strictest = <T>(order: readonly T[], values: readonly T[]): T => order[Math.min(...values.map((value) => order.indexOf(value)))]!

export const stricterSecurity = (...values: readonly [Security, ...Security[]]): Security => strictest(SECURITIES, values)
export const stricterAsk = (...values: readonly [Ask, ...Ask[]]): Ask => strictest(ASKS, values)
export const stricterFallback = (...values: readonly [AskFallback, ...AskFallback[]]): AskFallback => strictest(ASK_FALLBACKS, values)

/** A place that may say a setting, the first that does wins. */
export type SettingSource = 'parameter' | 'session' | 'agent' | 'global' | 'default'

/** A wish of a request that was wider than what is configured. */
export interface Clamp {
  readonly key: 'security' | 'ask'
  readonly asked: string
  readonly got: string
}

/** What is in force for one call. */
export interface ResolvedExec {
  readonly host: Host
  readonly security: Security
  readonly ask: Ask
  readonly ask_fallback: AskFallback
  readonly node: string | null
  readonly from: Readonly<Record<keyof ExecSettings, SettingSource>>
  readonly cuts: readonly Clamp[]
}

/** A wish for a host or a node that the configuration does not open to callers. */
export interface PreferenceRefused {
  readonly kind: 'refused'
  readonly key: 'host' | 'node'
  readonly asked: string
  readonly allowed: readonly string[]
}

export interface SettingSources {
  /** Of this one call. */
  readonly parameter: ExecSettings
  /** What a human has set for the session. */
  readonly session: ExecSettings
  readonly agent: ExecSettings
  readonly global: ExecSettings
  /** Hosts that a call may choose; null: the one that is configured, and the sandbox. */
  readonly allowed_hosts: readonly Host[] | null
}

/** What is in force, no wider than these settings say. */
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

/** Each setting by itself: the call, then the session, the agent, the file, the default. A call chooses among open hosts and narrows the rest. */
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
  // Whoever may choose the host `node` may choose among the agents that the configuration lets it reach; a bound one stays.
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
export const isGivenLabel = (door: LocalInterface): boolean => door === 'mcp'

/** The places that say where a run of this agent goes, but for the call itself. */
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
