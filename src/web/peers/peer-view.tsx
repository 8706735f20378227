import { useState } from 'preact/hooks'
import type { PagePeer, PagePeers, PagePing, PeerState } from '../../protocol/page-lists.ts'
import { call } from '../api.ts'
import { durationText } from '../format.ts'
import { Ago, Fact, Labels, Problems } from '../parts.tsx'
import { hrefOf } from '../router.ts'
import { useNow } from '../use-now.ts'
import { usePolled } from '../use-polled.ts'
import { Name } from '../visible.tsx'

const POLL_MS = 5_000

const STATE_TEXTS: Readonly<Record<PeerState, readonly [text: string, meaning: string]>> = {
  linked: ['linked', 'connected, and both agents and machines are proven'],
  connected: ['connected', 'connected; the agent is not proven yet'],
  announced: ['announced', 'not connected; it announced itself lately'],
  not_seen: ['not seen', 'not connected, and not heard of'],
}

/** The state of a peer: a colour and a sign, and the same in words. */
export const State = ({ state, isLong = false }: { readonly state: PeerState; readonly isLong?: boolean }) => (
  <span class={`state ${state}`} title={STATE_TEXTS[state][1]}>
    {STATE_TEXTS[state][0]}
    {isLong && <span class="quiet"> ({STATE_TEXTS[state][1]})</span>}
  </span>
)

/** ID of a peer in an address of the page. An agent may be on several machines. */
export const keyOfPeer = ({ agent_id, machine_id }: PagePeer): string => machine_id ?? agent_id ?? ''

const clockDifference = (ms: number): string =>
  Math.abs(ms) < 1_000 ? 'the same time' : `${durationText(Math.abs(ms))} ${ms > 0 ? 'ahead' : 'behind'}`

const Measure = ({ agentId }: { readonly agentId: string }) => {
  const [said, setSaid] = useState<PagePing | string | null>(null)
  const measure = async (): Promise<void> => {
    setSaid('Measuring …')
    try {
      setSaid(await call<PagePing>('ping', { agent_id: agentId }))
    } catch (error) {
      setSaid(error instanceof Error ? error.message : String(error))
    }
  }
  return (
    <p>
      <button type="button" onClick={() => void measure()}>
        Measure now
      </button>{' '}
      <span role="status">
        {said === null ? (
          ''
        ) : typeof said === 'string' ? (
          <Name text={said} />
        ) : (
          <>
            {durationText(said.rtt_ms)} round trip, x0xd <Name text={said.version} />, its clock has {clockDifference(said.clock_ahead_ms)}
          </>
        )}
      </span>
    </p>
  )
}

const Facts = ({ peer }: { readonly peer: PagePeer }) => {
  const now = useNow(5_000)
  return (
    <dl class="facts">
      <Fact name="State">
        <State state={peer.state} isLong />
      </Fact>
      <Fact name="Trust">{peer.trust ?? 'no contact'}</Fact>
      <Fact name="Labels">{Object.keys(peer.labels).length === 0 ? 'none' : <Labels labels={peer.labels} />}</Fact>
      <Fact name="Last seen">{peer.last_seen === null ? 'never' : <Ago iso={peer.last_seen} now={now} />}</Fact>
      <Fact name="Path">
        {peer.path === null ? (
          'no connection'
        ) : peer.path === 'direct' ? (
          'direct'
        ) : (
          <>
            relayed by <Name text={peer.path} />
          </>
        )}
        {peer.rtt_ms !== null && `, ${durationText(peer.rtt_ms)} round trip`}
      </Fact>
      <Fact name="Version">{peer.version === null ? 'not asked' : <Name text={peer.version} />}</Fact>
      <Fact name="Agent">
        <span class="mono">
          <Name text={peer.agent_id ?? 'not known'} />
        </span>
      </Fact>
      <Fact name="Machine">
        <span class="mono">
          <Name text={peer.machine_id ?? 'not known'} />
        </span>
      </Fact>
      <Fact name="Addresses">
        {peer.addresses.length === 0 && 'none'}
        {peer.addresses.map((address) => (
          <div key={address} class="mono">
            <Name text={address} />
          </div>
        ))}
      </Fact>
    </dl>
  )
}

/** One peer, by the ID of its machine, or of its agent if it was not seen. */
export const PeerView = ({ id }: { readonly id: string }) => {
  const body = { text: id.slice(0, 256), label: '', state: null, version: '', unseen_ms: null, order: null, from: 0 }
  const { value, problem } = usePolled<PagePeers>('peers', body, POLL_MS)
  const peer = value?.rows.find((one) => keyOfPeer(one) === id) ?? null
  return (
    <>
      <p class="crumbs">
        <a href={hrefOf('peers')}>Peers</a>
      </p>
      <h2>{peer === null || peer.name === null ? 'Peer without a name' : <Name text={peer.name} />}</h2>
      <Problems texts={[problem]} />
      {value !== null && peer === null && <p class="empty">The daemon does not know this peer any more.</p>}
      {peer !== null && (
        <section class="card">
          <Facts peer={peer} />
          {peer.agent_id !== null && <Measure agentId={peer.agent_id} />}
          <p class="links">
            {peer.trust !== null && <a href={hrefOf('trust', null, { text: peer.name ?? '' })}>Trust, pins and labels</a>}
            {peer.agent_id !== null && <a href={hrefOf('runs', null, { host: peer.agent_id })}>Its runs</a>}
          </p>
        </section>
      )}
    </>
  )
}
