import type { Clock } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { PageOverview, PagePeer, PageRun } from '../../protocol/page-lists.ts'
import { type PeerList, isUp } from './peer-list.ts'
import type { RunList } from './run-list.ts'

const HOUR_MS = 60 * 60_000
const BUCKETS = 12
const LATEST = 8

const isBad = ({ result }: PageRun): boolean => result === 'failed' || result === 'denied' || result === 'lost'

const bucketsOf = (runs: readonly PageRun[], now: number): PageOverview['buckets'] => {
  const buckets = Array.from({ length: BUCKETS }, () => ({ good: 0, bad: 0 }))
  for (const run of runs) {
    const age = now - Date.parse(run.started_at)
    const bucket = buckets[BUCKETS - 1 - Math.min(BUCKETS - 1, Math.max(0, Math.floor((age / HOUR_MS) * BUCKETS)))]!
    bucket[isBad(run) ? 'bad' : 'good'] += 1
  }
  return buckets
}

const hostsOf = (peers: readonly PagePeer[]): NonNullable<PageOverview['hosts']> => {
  // An agent may be on several machines. It is up if one of them is.
  const contacts = Map.groupBy(
    peers.filter(({ trust }) => trust !== null),
    ({ agent_id }) => agent_id,
  )
  const up = [...contacts.values()].filter((machines) => machines.some(isUp)).length
  return { up, down: contacts.size - up, unlisted: peers.filter(({ trust }) => trust === null).length }
}

/** What an operator sees first. */
export const overviewOf = async (
  { peers, runs }: { readonly peers: PeerList; readonly runs: RunList },
  clock: Pick<Clock, 'now'>,
): Promise<PageOverview> => {
  const now = clock.now()
  const since = new Date(now - HOUR_MS).toISOString()
  const [hosts, { runs: all, problems }] = await Promise.all([peers.all().then(hostsOf, (error: unknown) => errorText(error)), runs.all()])
  const recent = all.filter(({ started_at }) => started_at >= since)
  const count = (result: PageRun['result']): number => recent.filter((run) => run.result === result).length
  return {
    hosts: typeof hosts === 'string' ? null : hosts,
    runs: {
      count: recent.length,
      failed: count('failed') + count('lost'),
      running: all.filter(({ result }) => result === 'running' || result === 'waiting').length,
      denied: count('denied') + runs.suppressedSince(since),
    },
    buckets: bucketsOf(recent, now),
    latest: all.slice(0, LATEST),
    problems: typeof hosts === 'string' && problems.length === 0 ? [hosts] : problems,
  }
}
