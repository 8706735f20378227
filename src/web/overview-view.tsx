import type { ComponentChildren } from 'preact'
import type { PageBucket, PageOverview } from '../protocol/page-lists.ts'
import { counted, numberText } from './format.ts'
import { Problems } from './parts.tsx'
import { hrefOf } from './router.ts'
import { RunTable } from './runs/run-table.tsx'
import { type PageState, waitingOf } from './store.ts'
import { useNow } from './use-now.ts'
import { usePolled } from './use-polled.ts'

const POLL_MS = 3_000

interface TileProps {
  readonly name: string
  readonly value: string
  readonly href: string
  readonly tone?: 'good' | 'bad' | 'wait' | 'plain'
  readonly children?: ComponentChildren
}

/** A number that leads to its view. */
const Tile = ({ name, value, href, tone = 'plain', children }: TileProps) => (
  <a class={`tile ${tone}`} href={href} data-row>
    <span class="tile-name">{name}</span>
    <span class="tile-value">{value}</span>
    <span class="quiet">{children}</span>
  </a>
)

const HEIGHT = 48
const WIDTH = 20

/** Runs of the last hour, those that failed or were denied on top. */
const Bars = ({ buckets }: { readonly buckets: readonly PageBucket[] }) => {
  const most = Math.max(1, ...buckets.map(({ good, bad }) => good + bad))
  const total = buckets.reduce((sum, { good }) => sum + good, 0)
  const bad = buckets.reduce((sum, bucket) => sum + bucket.bad, 0)
  const high = (count: number): number => (count / most) * HEIGHT
  return (
    <figure class="bars">
      <svg
        viewBox={`0 0 ${WIDTH * buckets.length} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`In the last hour ${total} runs succeeded or are running, and ${bad} did not succeed`}
      >
        {buckets.map((bucket, at) => (
          <g key={at}>
            <rect class="good" x={at * WIDTH + 1} width={WIDTH - 2} y={HEIGHT - high(bucket.good)} height={high(bucket.good)} />
            <rect class="bad" x={at * WIDTH + 1} width={WIDTH - 2} y={HEIGHT - high(bucket.good + bucket.bad)} height={high(bucket.bad)} />
          </g>
        ))}
      </svg>
      <figcaption>
        <span>1 h ago</span>
        <span>
          <span class="key good">succeeded or running</span> <span class="key bad">failed or denied</span>
        </span>
        <span>now</span>
      </figcaption>
    </figure>
  )
}

const Tiles = ({ overview, waiting }: { readonly overview: PageOverview; readonly waiting: number }) => {
  const { hosts, runs } = overview
  const within = { within: 'hour' }
  return (
    <div class="tiles">
      <Tile name="Waiting" value={numberText(waiting)} href={hrefOf('approvals')} tone={waiting > 0 ? 'wait' : 'plain'}>
        for your decision
      </Tile>
      <Tile name="Hosts up" value={hosts === null ? '–' : numberText(hosts.up)} href={hrefOf('peers', null, { state: 'up' })} tone="good">
        {hosts === null ? 'no daemon answers' : `of ${counted(hosts.up + hosts.down, 'contact')}`}
      </Tile>
      <Tile
        name="Hosts down"
        value={hosts === null ? '–' : numberText(hosts.down)}
        href={hrefOf('peers', null, { state: 'not_seen' })}
        tone={hosts !== null && hosts.down > 0 ? 'bad' : 'plain'}
      >
        not seen
      </Tile>
      <Tile name="Running" value={numberText(runs.running)} href={hrefOf('runs', null, { result: 'running' })}>
        now
      </Tile>
      <Tile name="Runs" value={numberText(runs.count)} href={hrefOf('runs', null, within)}>
        in the last hour
      </Tile>
      <Tile
        name="Failed"
        value={numberText(runs.failed)}
        href={hrefOf('runs', null, { result: 'failed', ...within })}
        tone={runs.failed > 0 ? 'bad' : 'plain'}
      >
        in the last hour
      </Tile>
      <Tile
        name="Denied"
        value={numberText(runs.denied)}
        href={hrefOf('runs', null, { result: 'denied', ...within })}
        tone={runs.denied > 0 ? 'bad' : 'plain'}
      >
        in the last hour
      </Tile>
    </div>
  )
}

/** The state of the fleet in numbers, and the latest runs. */
export const OverviewView = ({ state }: { readonly state: PageState }) => {
  const now = useNow(1_000)
  const { value, problem } = usePolled<PageOverview>('overview', {}, POLL_MS)
  return (
    <>
      <h2>Overview</h2>
      <Problems texts={[problem, ...(value?.problems ?? [])]} />
      {value === null && problem === null && <p class="quiet">Loading …</p>}
      {value !== null && (
        <>
          <Tiles overview={value} waiting={waitingOf(state).length} />
          <Bars buckets={value.buckets} />
          <div class="bar">
            <h3>Latest runs</h3>
            <a href={hrefOf('runs')}>All runs</a>
          </div>
          {value.latest.length === 0 ? (
            <p class="empty">No runs yet. To run a command on another machine: x0x exec NAME -- COMMAND</p>
          ) : (
            <RunTable runs={value.latest} now={now} label="Latest runs" />
          )}
        </>
      )}
    </>
  )
}
