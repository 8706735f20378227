import type { Clock } from '../../base/clock.ts'
import { AppError, errorText } from '../../base/errors.ts'
import { type Environment, VERSION } from '../../base/runtime.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { UI } from '../../cli/programs.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import { type InstanceChoice, instanceChoice } from '../../clients/paths.ts'
import { type AclBesideDaemon, aclInForce, signingHere } from '../../doctor/loaded-acl.ts'
import type { PageSources } from '../../doors/page/services.ts'
import type { LoadAclInit } from '../../policy/mesh/load-acl.ts'
import { changeContact, contactsOf, createOnPage, enrolKeys, revokeEnrolKey } from './contact-list.ts'
import { DaemonLists } from './daemon-lists.ts'
import { EngineConfigs } from './engine-configs.ts'
import { JournalBook } from './journal-book.ts'
import { localModes, revokeGrant, takeBackModes } from './local-modes.ts'
import { overviewOf } from './overview.ts'
import { PeerList } from './peer-list.ts'
import { explainHere, explainInForce, policyHere, policyInForce } from './policy-here.ts'
import { detachedOutput, stopRun } from './requested-runs.ts'
import { RunList } from './run-list.ts'

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

/** The file to show: the named one, otherwise that of the daemon. If the daemon enforces something else, its ACL. */
const aclOf = async (
  api: LocalApi,
  { env, execAcl, instance }: Pick<UiFlags, 'env' | 'execAcl' | 'instance'>,
): Promise<LoadAclInit | AclBesideDaemon> => {
  if (execAcl !== null) return { path: execAcl, explicit: true }
  const inForce = await aclInForce(api, instance, env)
  if (inForce.difference !== null) return inForce
  // The daemon has checked the signature of a file that is in force.
  const signing = inForce.isRunning ? null : await signingHere(api, null, { instance, env })
  return { path: inForce.file, explicit: false, signing }
}

/** The data of the page: from a running daemon, and from files that this user may read. */
export const pageSources = (
  { api, clock }: { readonly api: LocalApi; readonly clock: Clock },
  { config, env, execAcl, instance }: Pick<UiFlags, 'config' | 'env' | 'execAcl' | 'instance'>,
): PageSources => {
  const configs = new EngineConfigs({ config, env })
  const book = new JournalBook({ api, clock, configs })
  const lists = new DaemonLists({ api, clock })
  const runs = new RunList({ api, book, clock, lists })
  const peers = new PeerList({ api, clock, lists })
  const acl = async (): Promise<LoadAclInit | AclBesideDaemon> => aclOf(api, { env, execAcl, instance })
  return {
    about: async () => {
      const agent = await lists.agent.get().catch(() => null)
      const { agent_id = null, machine_id = null, name = null, version = null } = agent ?? {}
      return { version: VERSION, daemon: version, data_dir: api.paths.dir, agent_id, machine_id, name }
    },
    overview: async () => overviewOf({ peers, runs }, clock),
    runs: async (query) => runs.runs(query),
    run: async (key, signal) => {
      const detail = await runs.detail(key, signal)
      if (detail === null) throw new AppError('unknown_run', 'no log of this machine has that run any more')
      return detail
    },
    detachedOutput: async (key, signal) => detachedOutput({ api, lists }, await runs.find(key), signal),
    stopRun: async (key, signal) => stopRun({ api, lists }, await runs.find(key), signal),
    fanouts: async () => runs.fanouts(),
    peers: async (query) => peers.peers(query),
    ping: async (id, signal) => peers.ping(id, signal),
    contacts: async (query) => contactsOf({ api, lists }, query),
    changeContact: async (change) => changeContact({ api, lists }, change),
    journal: async (query, signal) => book.entries(query, await lists.names(), signal),
    enrolKeys: async () => enrolKeys(api),
    createEnrolKey: async (wish) => createOnPage(api, wish),
    revokeEnrolKey: async (id) => revokeEnrolKey(api, id),
    policy: async () => {
      const { contacts } = await lists.contacts.get().catch(() => ({ contacts: [] }))
      try {
        const shown = await acl()
        return 'file' in shown ? policyInForce(shown, contacts) : await policyHere(shown, contacts)
      } catch (error) {
        return { source: null, pairs: [], problem: errorText(error) }
      }
    },
    modes: async () => localModes(api.paths, configs),
    revoke: async (id) => revokeGrant(api.paths, id),
    takeBackModes: async (session) => takeBackModes(api.paths, session),
    explain: async (query) => {
      try {
        const shown = await acl()
        return 'file' in shown ? explainInForce(shown, query) : await explainHere(shown, query)
      } catch (error) {
        return { outcome: 'denied', text: errorText(error) }
      }
    },
  }
}
