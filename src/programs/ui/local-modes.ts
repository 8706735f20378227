import { errorText } from '../../base/errors.ts'
import { type ApprovalClient, openDesk } from '../../clients/desk.ts'
import type { DataPaths } from '../../clients/paths.ts'
import {
  type Ask,
  type AskFallback,
  NO_SETTINGS,
  type ResolvedExec,
  type Security,
  type SettingSource,
  type ToolsSettings,
  placesOf,
  resolveExec,
  settingsOf,
  stricterAsk,
  stricterFallback,
  stricterSecurity,
} from '../../policy/modes.ts'
import type { ModeOverride } from '../../protocol/desk/messages.ts'
import { overrideIn, overrideText } from '../../protocol/desk/mode-command.ts'
import { isTable } from '../../protocol/json-table.ts'
import type { PageAgentModes, PageModes, PageSetModes, PageSetting } from '../../protocol/page.ts'
import type { EngineConfigs } from './engine-configs.ts'

/** Limit on agents of all files. Each needs a request to the approval service, which disconnects clients that send too many. */
const MAX_AGENTS = 200

/** The approval service's answer about an agent. */
interface OfDesk {
  readonly session: ModeOverride | null
  readonly security: Security
  readonly ask: Ask
  readonly ask_fallback: AskFallback
}

/** Null for agents that no list names. */
const ofDesk = async (desk: ApprovalClient, agent: string | null): Promise<OfDesk> => {
  const { session, security, ask, ask_fallback } = await desk.modes({ session: agent, agent })
  return {
    session: overrideIn(session),
    security: security as Security,
    ask: ask as Ask,
    ask_fallback: ask_fallback as AskFallback,
  }
}

const sourceText = (source: SettingSource): string =>
  ({
    parameter: 'the call',
    session: 'the settings of the session',
    agent: '[[agents.list]] of the file',
    global: '[tools.exec] of the file',
    default: 'default',
  })[source]

const STORE = 'the approvals store, which is stricter'

/** Applies the stricter of store and configuration; a mode set by an approver replaces that of the store. */
const withStore = (resolved: ResolvedExec, said: OfDesk | null): readonly PageSetting[] => {
  const { host, security, ask, ask_fallback, node, from } = resolved
  const stored = host === 'gateway' ? said : null
  const set = settingsOf(said?.session ?? null)
  const setting = (name: PageSetting['name'], own: string, is: string): PageSetting => ({
    name,
    value: is,
    from: own === is ? sourceText(from[name]) : STORE,
  })
  return [
    setting('host', host, host),
    setting('security', security, stricterSecurity(security, set.security ?? stored?.security ?? security)),
    setting('ask', ask, stricterAsk(ask, set.ask ?? stored?.ask ?? ask)),
    setting('ask_fallback', ask_fallback, stricterFallback(ask_fallback, stored?.ask_fallback ?? ask_fallback)),
    ...(node === null ? [] : [setting('node', node, node)]),
  ]
}

/** An agent that no list names. */
const OTHERS = ''

const modesOf = async (tools: ToolsSettings, agent: string, config: string, desk: ApprovalClient | null): Promise<PageAgentModes> => {
  const said = desk === null ? null : await ofDesk(desk, agent === OTHERS ? null : agent)
  const resolved = resolveExec({
    parameter: NO_SETTINGS,
    ...placesOf(tools, agent, said?.session ?? null),
  })
  return {
    agent: agent === OTHERS ? null : agent,
    config,
    settings: resolved.kind === 'refused' ? [] : withStore(resolved, said),
    session: said?.session ? overrideText(said.session) : null,
  }
}

const namesIn = (value: unknown): string[] => (isTable(value) ? Object.keys(value) : [])

/** The modes of local agents, from the programs' files, the approval service, and what approvers have set. */
export const localModes = async (paths: DataPaths, configs: EngineConfigs): Promise<PageModes> => {
  const problems: string[] = []
  const desk = await openDesk(paths, 'x0x ui').catch((error: unknown) => void problems.push(errorText(error)))
  try {
    const named = namesIn((await desk?.store())?.['agents'])
    const agents: PageAgentModes[] = []
    let room = MAX_AGENTS
    for (const reading of await configs.read()) {
      problems.push(...reading.problems)
      const { tools, path } = reading.config ?? {}
      if (tools === undefined || path === undefined) continue
      const all = [...new Set([...Object.keys(tools.agents), ...named])]
      if (all.length > room)
        problems.push(`${all.length - room} agents of ${path} are not shown: x0x exec-mode show --agent NAME shows one`)
      for (const agent of [...all.slice(0, room), OTHERS]) agents.push(await modesOf(tools, agent, path, desk ?? null))
      room = Math.max(0, room - all.length)
    }
    const all = (await desk?.allModes()) ?? { sessions: [], left_out: 0 }
    const shown = new Set(agents.map(({ agent }) => agent))
    const others: PageSetModes[] = all.sessions
      .toReversed()
      .map(({ session: name, override, by }) => ({ name, modes: overrideText(override), by }))
      .filter(({ name }) => !shown.has(name))
    if (all.left_out > 0) problems.push(`${all.left_out} settings are not shown: x0x exec-mode show --agent NAME shows one`)
    return { agents, others, grants: (await desk?.grants()) ?? [], problems }
  } finally {
    desk?.close()
  }
}

const atDesk = async (paths: DataPaths, change: (desk: ApprovalClient) => Promise<object>): Promise<object> => {
  const desk = await openDesk(paths, 'x0x ui')
  try {
    return await change(desk)
  } finally {
    desk.close()
  }
}

export const revokeGrant = async (paths: DataPaths, id: string): Promise<object> => atDesk(paths, async (desk) => desk.revoke(id))

/** Resets the modes of a session, or of all sessions of an agent. */
export const takeBackModes = async (paths: DataPaths, session: string): Promise<object> =>
  atDesk(paths, async (desk) => desk.setModes(session, null))
