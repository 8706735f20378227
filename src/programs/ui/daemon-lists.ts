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
import { PAGE_DAEMON_MS, PAGE_SHARED_MS } from '../../protocol/limits/page.ts'

/** One answer for all pages. It is loaded again when it is old, at most once at a time. */
export class SharedAnswer<T> {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #load: (signal: AbortSignal) => Promise<T>
  readonly #ageMs: number
  #last: { readonly answer: Promise<T>; readonly at: number } | null = null

  constructor(components: { readonly clock: Pick<Clock, 'monotonic'> }, load: (signal: AbortSignal) => Promise<T>, ageMs = PAGE_SHARED_MS) {
    this.#clock = components.clock
    this.#load = load
    this.#ageMs = ageMs
  }

  /** Throws the error of the loading. A failed answer is loaded again by the next call. */
  async get(): Promise<T> {
    if (this.#last !== null && this.#clock.monotonic() - this.#last.at < this.#ageMs) return this.#last.answer
    const last = { answer: this.#load(AbortSignal.timeout(PAGE_DAEMON_MS)), at: Number.POSITIVE_INFINITY }
    this.#last = last
    const settle = (at: number | null): void => {
      if (this.#last === last) this.#last = at === null ? null : { ...last, at }
    }
    last.answer.then(
      () => settle(this.#clock.monotonic()),
      () => settle(null),
    )
    return last.answer
  }

  /** Has the next call load it again. */
  forget(): void {
    this.#last = null
  }
}

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
