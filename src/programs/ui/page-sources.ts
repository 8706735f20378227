import { errorText } from '../../base/errors.ts'
import { VERSION } from '../../base/version.ts'
import type { LocalApi } from '../../clients/local-api.ts'
import { defaultAclPath } from '../../clients/paths.ts'
import { aclInForce } from '../../doctor/loaded-acl.ts'
import type { PageSources } from '../../doors/page/page-sources.ts'
import type { ExecDiagnostics } from '../../executor/exec-counters.ts'
import type { LoadAclInit } from '../../policy/mesh/load-acl.ts'
import type { ContactsAnswer, PeersAnswer } from '../../protocol/api-answers.ts'
import type { PagePeer } from '../../protocol/page.ts'
import { EngineConfigs } from './engine-configs.ts'
import type { UiFlags } from './flags.ts'
import { JournalBook } from './journal-book.ts'
import { localModes, revokeGrant, takeBackModes } from './local-modes.ts'
import { explainHere, explainInForce, policyHere } from './policy-pages.ts'
import { runsOf } from './run-list.ts'

const contactsOf = async (api: LocalApi, signal: AbortSignal): Promise<ContactsAnswer['contacts']> =>
  (await api.json<ContactsAnswer>({ method: 'GET', path: '/contacts', signal })).contacts

/** Contacts of whom nothing is seen stand behind those who are there. */
const peersOf = async (api: LocalApi, signal: AbortSignal): Promise<{ readonly peers: readonly PagePeer[] }> => {
  const { peers } = await api.json<PeersAnswer>({ method: 'GET', path: '/peers', signal })
  const contacts = await contactsOf(api, signal)
  const seen = peers.map((peer) => {
    const contact = contacts.find(({ agent_id }) => agent_id === peer.agent_id)
    return {
      agent_id: peer.agent_id,
      machine_id: peer.machine_id,
      // What a stranger calls itself is no name of ours.
      name: contact?.name ?? (peer.name === null ? null : JSON.stringify(peer.name)),
      trust: contact?.trust ?? null,
      state: peer.linked ? 'linked' : peer.connected ? 'connected' : 'announced',
    }
  })
  const absent = contacts.filter(({ agent_id }) => !peers.some((peer) => peer.agent_id === agent_id))
  return { peers: [...seen, ...absent.map((contact) => ({ ...contact, machine_id: null, state: 'not seen' }))] }
}

/** The file that is named, else the one that the running daemon reads: the default place may have none, or another. */
const aclOf = async (
  api: LocalApi,
  { execAcl, instance }: Pick<UiFlags, 'execAcl' | 'instance'>,
  signal: AbortSignal,
): Promise<LoadAclInit> => {
  if (execAcl !== null) return { path: execAcl, explicit: true }
  const exec = await api.json<Pick<ExecDiagnostics, 'acl_summary'>>({ method: 'GET', path: '/diagnostics/exec', signal }).catch(() => null)
  return { path: exec?.acl_summary.loaded_from ?? defaultAclPath(instance.name, api.paths), explicit: false }
}

/** What the page shows, of the daemon where one runs and of files that this user may read. */
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
