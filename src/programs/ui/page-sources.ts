import { errorText } from '../../base/errors.ts'
import { type Environment, VERSION } from '../../base/runtime.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { UI } from '../../cli/programs.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import { type InstanceChoice, defaultAclPath, instanceChoice } from '../../clients/paths.ts'
import { type AclBesideDaemon, aclInForce, notInForceLines } from '../../doctor/loaded-acl.ts'
import type { PageSources } from '../../doors/page/services.ts'
import type { ExecDiagnostics } from '../../executor/exec-counters.ts'
import type { Acl, AllowEntry } from '../../policy/mesh/acl.ts'
import { explain, explanationText } from '../../policy/mesh/explain.ts'
import { type FileGrant, ruleOf } from '../../policy/mesh/file-grants.ts'
import { type LoadAclInit, loadAcl } from '../../policy/mesh/load-acl.ts'
import type { ContactsAnswer, PeersAnswer } from '../../protocol/api-answers.ts'
import type { PageExplainQuery, PageExplanation, PagePeer, PagePolicy, PageRule } from '../../protocol/page.ts'
import { EngineConfigs } from './engine-configs.ts'
import { JournalBook } from './journal-book.ts'
import { localModes, revokeGrant, takeBackModes } from './local-modes.ts'
import { runsOf } from './run-list.ts'

export interface UiFlags {
  readonly instance: InstanceChoice
  readonly env: Environment
  /** Null for that of the daemon. */
  readonly execAcl: string | null
  /** The configuration of the programs whose agents are shown, or null for the default ones. */
  readonly config: string | null
  readonly port: number
  /** Serve the page at 127.0.0.1 instead of under a new host name. */
  readonly loopbackIp: boolean
  readonly json: boolean
}

const MAX_PORT = 65_535

const portOf = (text: string): number => {
  if (/^[0-9]{1,5}$/.test(text) && Number(text) <= MAX_PORT) return Number(text)
  throw badFlags(`--port: ${JSON.stringify(text)} is not a number from 0 to ${MAX_PORT}`, UI.name)
}

/** Throws `bad_config` naming the flag that is wrong. */
export const uiFlags = (line: CommandLine, env: Environment): UiFlags => ({
  instance: instanceChoice({ name: line.value('name'), dataDir: line.value('data-dir') }, env),
  env,
  config: line.value('config'),
  execAcl: line.value('exec-acl'),
  port: portOf(line.value('port') ?? ''),
  loopbackIp: line.has('loopback-ip'),
  json: line.has('json'),
})

interface Named {
  readonly name: string
  readonly agent_id: string
}

/** Approvals that a run needs besides the file. */
const askedText = ({ asking }: AllowEntry, isPattern: boolean): string => {
  const human = asking.ask === 'always' || isPattern ? '; it needs approval on this machine' : ''
  return `${human}${asking.approvals_needed === 0 ? '' : `; ${asking.approvals_needed} of ${asking.approvers.length} other agents must allow it`}`
}

const noteOf = (entry: AllowEntry, isStdinOpen: boolean, isPattern: boolean): string => {
  const { description, limits } = entry
  const stdin = isStdinOpen && limits.max_stdin_bytes > 0 ? `${limits.max_stdin_bytes} B` : 'closed'
  return `${description}; ${limits.max_duration_secs} s, stdin ${stdin}${askedText(entry, isPattern)}`
}

const rulesOf = (entry: AllowEntry): PageRule[] => [
  ...entry.commands.map(({ argv, stdin }) => ({ argv, note: noteOf(entry, stdin, false) })),
  ...entry.asking.patterns.map(({ argv, stdin }) => ({ argv, note: noteOf(entry, stdin, true) })),
  ...entry.files.flatMap((grant) =>
    (['read', 'write'] as const)
      .filter((right) => grant[right])
      .map((right) => ({ argv: ruleOf(grant, right), note: fileNoteOf(entry, grant, right) })),
  ),
]

const fileNoteOf = ({ description, limits }: AllowEntry, grant: FileGrant, right: 'read' | 'write'): string =>
  `${description}; ${limits.max_duration_secs} s${right === 'write' ? `, ${grant.max_file_bytes} B per file` : ''}`

/** What each pair of agent and machine may run on this host, in the order of the file. */
export const policyHere = async (init: LoadAclInit, contacts: readonly Named[]): Promise<PagePolicy> => {
  try {
    const { acl, status } = await loadAcl(init)
    const pairs = Map.groupBy(acl.allow, ({ agent_id, machine_id }) => `${agent_id} ${machine_id}`)
    return {
      source: init.path,
      pairs: [...pairs.values()].map((entries) => {
        const { agent_id, machine_id } = entries[0]!
        return {
          agent_id,
          machine_id,
          name: contacts.find((contact) => contact.agent_id === agent_id)?.name ?? null,
          commands: entries.flatMap(rulesOf),
        }
      }),
      problem: status === 'enabled' ? null : `this machine runs nothing for other agents: ${status}`,
    }
  } catch (error) {
    return { source: init.path, pairs: [], problem: errorText(error) }
  }
}

const explanationOf = (acl: Acl, { agent_id, machine_id, argv }: PageExplainQuery): PageExplanation => {
  const explanation = explain({ acl, agent_id, machine_id, argv })
  const outcome = explanation.allowed ? 'allowed' : explanation.asks === null ? 'denied' : 'asked'
  return { outcome, text: explanationText(explanation, argv) }
}

/** Explains the ACL in force if the file has changed since it was loaded. */
export const explainInForce = (inForce: AclBesideDaemon, query: PageExplainQuery): PageExplanation => {
  const said = notInForceLines(inForce)
  const unknown = { outcome: 'denied' as const, text: 'this user cannot read the ACL that x0xd loaded' }
  const { outcome, text } = inForce.loaded === null ? unknown : explanationOf(inForce.loaded, query)
  return { outcome, text: [...said, '', 'In force now:', text].join('\n') }
}

/** The decision about a command, from the function that also decides runs. */
export const explainHere = async (init: LoadAclInit, query: PageExplainQuery): Promise<PageExplanation> =>
  explanationOf((await loadAcl(init)).acl, query)

const contactsOf = async (api: LocalApi, signal: AbortSignal): Promise<ContactsAnswer['contacts']> =>
  (await api.json<ContactsAnswer>({ method: 'GET', path: '/contacts', signal })).contacts

/** Contacts that are not seen come last. */
const peersOf = async (api: LocalApi, signal: AbortSignal): Promise<{ readonly peers: readonly PagePeer[] }> => {
  const { peers } = await api.json<PeersAnswer>({ method: 'GET', path: '/peers', signal })
  const contacts = await contactsOf(api, signal)
  const seen = peers.map((peer) => {
    const contact = contacts.find(({ agent_id }) => agent_id === peer.agent_id)
    return {
      agent_id: peer.agent_id,
      machine_id: peer.machine_id,
      // A name that an unlisted peer gives itself is quoted.
      name: contact?.name ?? (peer.name === null ? null : JSON.stringify(peer.name)),
      trust: contact?.trust ?? null,
      state: peer.linked ? 'linked' : peer.connected ? 'connected' : 'announced',
    }
  })
  const absent = contacts.filter(({ agent_id }) => !peers.some((peer) => peer.agent_id === agent_id))
  return { peers: [...seen, ...absent.map((contact) => ({ ...contact, machine_id: null, state: 'not seen' }))] }
}

/** The named file, otherwise the one that the daemon reads, which may not be the default one. */
const aclOf = async (
  api: LocalApi,
  { execAcl, instance }: Pick<UiFlags, 'execAcl' | 'instance'>,
  signal: AbortSignal,
): Promise<LoadAclInit> => {
  if (execAcl !== null) return { path: execAcl, explicit: true }
  const exec = await api.json<Pick<ExecDiagnostics, 'acl_summary'>>({ method: 'GET', path: '/diagnostics/exec', signal }).catch(() => null)
  return { path: exec?.acl_summary.loaded_from ?? defaultAclPath(instance.name, api.paths), explicit: false }
}

/** The data of the page: from a running daemon, and from files that this user may read. */
export const pageSources = (
  api: LocalApi,
  { config, env, execAcl, instance }: Pick<UiFlags, 'config' | 'env' | 'execAcl' | 'instance'>,
): PageSources => {
  const configs = new EngineConfigs({ config, env })
  const book = new JournalBook(api, configs)
  const acl = async (signal: AbortSignal): Promise<LoadAclInit> => aclOf(api, { execAcl, instance }, signal)
  return {
    about: async (signal) => {
      const agent = await api
        .json<{ agent_id: string; machine_id: string; display_name?: string | null }>({ method: 'GET', path: '/agent', signal })
        .catch(() => null)
      return {
        version: VERSION,
        data_dir: api.paths.dir,
        agent_id: agent?.agent_id ?? null,
        machine_id: agent?.machine_id ?? null,
        name: agent?.display_name ?? null,
      }
    },
    runs: async (signal) => runsOf(api, book, signal),
    peers: async (signal) => peersOf(api, signal),
    journal: async (query, signal) => book.lines(query, signal),
    policy: async (signal) => policyHere(await acl(signal), await contactsOf(api, signal).catch(() => [])),
    modes: async () => localModes(api.paths, configs),
    revoke: async (id) => revokeGrant(api.paths, id),
    takeBackModes: async (session) => takeBackModes(api.paths, session),
    explain: async (query, signal) => {
      try {
        const inForce = execAcl === null ? await aclInForce(api, instance, env) : null
        return inForce === null || inForce.difference === null
          ? await explainHere(await acl(signal), query)
          : explainInForce(inForce, query)
      } catch (error) {
        return { outcome: 'denied', text: errorText(error) }
      }
    },
  }
}
