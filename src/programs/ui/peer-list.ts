import { BoundedMap } from '../../base/bounded-collections.ts'
import type { Clock } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import type { ContactRecord, PeerJson, Pinged } from '../../protocol/api-answers.ts'
import { MAX_PAGE_FILTER, MAX_PAGE_VERSIONS, PAGE_DAEMON_MS, PAGE_PINGS_AT_ONCE, PAGE_VERSION_MS } from '../../protocol/limits/page.ts'
import {
  PEER_STATES,
  type PagePeer,
  type PagePeers,
  type PagePeersQuery,
  type PagePing,
  type PeerColumn,
  type PeerState,
} from '../../protocol/page-lists.ts'
import { TRUST_LEVELS } from '../../protocol/reasons.ts'
import { type DaemonLists, nameOr } from './daemon-lists.ts'
import { type SortValues, compareTexts, hasWords, rangeStart, sliceOf, sortedBy } from './slices.ts'

interface PeerListDeps {
  readonly api: LocalApi
  readonly clock: Clock
  readonly lists: DaemonLists
}

interface KnownVersion {
  /** Null if it did not answer. */
  readonly version: string | null
  readonly at: number
}

/** A list that depends on versions asks for more of them for this long. An open page asks for its list again before. */
const ASK_ON_MS = 10_000

/** Labels that a filter offers. */
const MAX_OFFERED_LABELS = 500
/** Versions that a filter offers. Peers report them, so any text may occur. */
const MAX_OFFERED_VERSIONS = 100

const labelsOf = ({ labels }: Pick<PagePeer, 'labels'>): string[] => Object.entries(labels).map(([key, value]) => `${key}=${value}`)

const stateOf = ({ linked, connected }: PeerJson): PeerState => (linked ? 'linked' : connected ? 'connected' : 'announced')

/** Whether the daemon is connected to it, or has heard of it lately. */
export const isUp = ({ state }: Pick<PagePeer, 'state'>): boolean => state !== 'not_seen'

const isLinked = ({ state }: Pick<PagePeer, 'state'>): boolean => state === 'linked'

const versionsOf = (peers: readonly PagePeer[]): readonly string[] =>
  [...new Set(peers.flatMap(({ version }) => (version === null || version.length > MAX_PAGE_FILTER ? [] : [version])))]
    .toSorted(compareTexts)
    .slice(0, MAX_OFFERED_VERSIONS)

/** Whether a peer was not seen since this time. A peer that the daemon never saw counts as not seen. */
const isUnseenSince = ({ state, last_seen }: PagePeer, iso: string): boolean =>
  state !== 'linked' && state !== 'connected' && (last_seen === null || last_seen < iso)

const VALUES: SortValues<PagePeer, PeerColumn> = {
  name: ({ name }) => name,
  state: ({ state }) => PEER_STATES.indexOf(state),
  trust: ({ trust }) => (trust === null ? null : TRUST_LEVELS.indexOf(trust)),
  labels: (peer) => labelsOf(peer).join(' ') || null,
  seen: ({ last_seen }) => last_seen,
  rtt: ({ rtt_ms }) => rtt_ms,
  path: ({ path }) => path,
  version: ({ version }) => version,
}

/** Sorts peers. By default contacts come first, by name, and peers without a name last. */
export const sortedPeers = (peers: readonly PagePeer[], order: PagePeersQuery['order']): readonly PagePeer[] => {
  const contactsFirst = Object.groupBy(sortedBy(peers, 'name', VALUES), ({ trust }) => (trust === null ? 'others' : 'contacts'))
  return sortedBy([...(contactsFirst.contacts ?? []), ...(contactsFirst.others ?? [])], order, VALUES)
}

/** Contacts and discovered agents, for all pages. */
export class PeerList {
  readonly #deps: PeerListDeps
  /** By machine. */
  readonly #versions = new BoundedMap<string, KnownVersion>({ max: MAX_PAGE_VERSIONS })
  #asking = 0

  constructor(deps: PeerListDeps) {
    this.#deps = deps
  }

  async peers({ text, label, state, version, unseen_ms, order, from }: PagePeersQuery): Promise<PagePeers> {
    const unseenSince = unseen_ms === null ? null : rangeStart(this.#deps.clock.now(), unseen_ms)
    const all = await this.all()
    const hasText = hasWords(text)
    const some = all.filter(
      (peer) =>
        (unseenSince === null || isUnseenSince(peer, unseenSince)) &&
        (label === '' || labelsOf(peer).includes(label)) &&
        (state === null || (state === 'up' ? isUp(peer) : peer.state === state)) &&
        hasText([peer.name ?? '', peer.agent_id, peer.machine_id, peer.path, ...labelsOf(peer)].join(' ')),
    )
    const fitting = version === '' ? some : some.filter((peer) => peer.version === version)
    const slice = sliceOf(sortedPeers(fitting, order), from)
    // A list that depends on versions needs those of all its peers.
    const isByVersion = version !== '' || order === 'version' || order === '-version'
    if (isByVersion) this.#askVersions(some.slice(0, MAX_PAGE_VERSIONS), this.#deps.clock.monotonic() + ASK_ON_MS)
    else this.#askVersions(slice.rows)
    const versions_missing = isByVersion ? some.filter((peer) => isLinked(peer) && peer.version === null).length : 0
    const labels = [...new Set(all.flatMap(labelsOf))].toSorted().slice(0, MAX_OFFERED_LABELS)
    return { ...slice, labels, versions: versionsOf(all), versions_missing, problems: [] }
  }

  /** Contacts that are not seen come last. */
  async all(): Promise<readonly PagePeer[]> {
    const [{ peers }, { contacts }, names] = await Promise.all([
      this.#deps.lists.peers.get(),
      this.#deps.lists.contacts.get(),
      this.#deps.lists.names(),
    ])
    const byId = new Map(contacts.map((contact) => [contact.agent_id, contact]))
    const seen = new Set(peers.map(({ agent_id }) => agent_id))
    return [
      ...peers.map((peer) => this.#peer(peer, byId.get(peer.agent_id ?? ''), names)),
      ...contacts.filter(({ agent_id }) => !seen.has(agent_id)).map(absent),
    ]
  }

  /** Measures a peer now. Throws the error of the daemon. */
  async ping(agent_id: string, signal: AbortSignal): Promise<PagePing> {
    const pinged = await this.#deps.api.json<Pinged>({ method: 'POST', path: '/agents/ping', body: { agent_id }, signal })
    this.#versions.set(pinged.machine_id, { version: pinged.version, at: this.#deps.clock.monotonic() })
    this.#deps.lists.peers.forget()
    const { rtt_ms, version, clock_ahead_ms } = pinged
    return { rtt_ms, version, clock_ahead_ms }
  }

  #peer(peer: PeerJson, contact: ContactRecord | undefined, names: ReadonlyMap<string, string>): PagePeer {
    const { relayed_by: relay, last_heard, last_seen } = peer
    const relayName =
      relay === null ? null : relay.agent_id === null ? `machine ${relay.machine_id.slice(0, 8)}` : nameOr(names, relay.agent_id)
    return {
      agent_id: peer.agent_id,
      machine_id: peer.machine_id,
      // A name that an unlisted peer gives itself is quoted.
      name: contact?.name ?? (peer.name === null ? null : JSON.stringify(peer.name)),
      trust: contact?.trust ?? null,
      labels: contact?.labels ?? {},
      state: stateOf(peer),
      last_seen: last_heard ?? last_seen,
      rtt_ms: peer.rtt_ms,
      version: this.#versions.get(peer.machine_id)?.version ?? null,
      path: peer.connected ? (relayName ?? 'direct') : null,
      addresses: peer.addresses,
    }
  }

  /** Asks some linked peers for their version, and others until the given time, a few at once. The next answer has it. */
  #askVersions(peers: readonly PagePeer[], until = 0): void {
    const now = this.#deps.clock.monotonic()
    for (const peer of peers) {
      const { agent_id, machine_id } = peer
      const known = this.#versions.get(machine_id ?? '')
      if (this.#asking >= PAGE_PINGS_AT_ONCE) return
      if (agent_id === null || machine_id === null || !isLinked(peer) || (known !== undefined && now - known.at < PAGE_VERSION_MS)) continue
      this.#asking += 1
      // One that does not answer is asked again later.
      this.#versions.set(machine_id, { version: known?.version ?? null, at: now })
      void this.ping(agent_id, AbortSignal.timeout(PAGE_DAEMON_MS))
        .catch((error: unknown) => errorText(error))
        .finally(() => {
          this.#asking -= 1
          if (this.#deps.clock.monotonic() < until) this.#askVersions(peers, until)
        })
    }
  }
}

const absent = ({ agent_id, name, trust, labels, addresses }: ContactRecord): PagePeer => ({
  agent_id,
  machine_id: null,
  name,
  trust,
  labels,
  state: 'not_seen',
  last_seen: null,
  rtt_ms: null,
  version: null,
  path: null,
  addresses,
})
