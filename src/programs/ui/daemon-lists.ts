import type { Clock } from '../../base/clock.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import {
  type AgentAnswer,
  CONTACTS,
  type ContactsAnswer,
  PEERS,
  type PeersAnswer,
  type RunSession,
  SESSIONS,
} from '../../protocol/api-answers.ts'
import type { DetachedRunView } from '../../protocol/api/detached-run.ts'
import { shortId } from '../../protocol/ids.ts'
import { SharedAnswer } from './shared-answer.ts'

/** Age of the answer with detached runs, which may be thousands. */
const DETACHED_MS = 5_000

/** Lists of the daemon that several views need, loaded once for all pages. */
export class DaemonLists {
  readonly agent: SharedAnswer<AgentAnswer>
  readonly contacts: SharedAnswer<ContactsAnswer>
  readonly peers: SharedAnswer<PeersAnswer>
  readonly sessions: SharedAnswer<readonly RunSession[]>
  readonly detached: SharedAnswer<readonly DetachedRunView[]>

  constructor(components: { readonly api: LocalApi; readonly clock: Pick<Clock, 'monotonic'> }) {
    const { api } = components
    this.agent = new SharedAnswer(components, async (signal) => api.json<AgentAnswer>({ method: 'GET', path: '/agent', signal }))
    this.contacts = new SharedAnswer(components, async (signal) => api.read({ method: 'GET', path: '/contacts', signal }, CONTACTS))
    this.peers = new SharedAnswer(components, async (signal) => api.read({ method: 'GET', path: '/peers', signal }, PEERS))
    this.sessions = new SharedAnswer(
      components,
      async (signal) => (await api.read({ method: 'GET', path: '/exec/sessions', signal }, SESSIONS)).sessions,
    )
    this.detached = new SharedAnswer(
      components,
      async (signal) => (await api.json<{ runs: readonly DetachedRunView[] }>({ method: 'GET', path: '/runs', signal })).runs,
      DETACHED_MS,
    )
  }

  /** Names of contacts and of this agent, by ID. Empty without a daemon. */
  async names(): Promise<ReadonlyMap<string, string>> {
    const [contacts, agent] = await Promise.all([this.contacts.get().catch(() => null), this.agent.get().catch(() => null)])
    const names = new Map((contacts?.contacts ?? []).map(({ agent_id, name }) => [agent_id, name]))
    if (agent !== null) names.set(agent.agent_id, agent.name)
    return names
  }
}

/** The name of an agent, or the beginning of its ID. */
export const nameOr = (names: ReadonlyMap<string, string>, id: string): string => names.get(id) ?? shortId(id)
