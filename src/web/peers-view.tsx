import type { PagePeer } from '../protocol/page.ts'
import { usePolled } from './use-polled.ts'
import { Name } from './visible.tsx'

const POLL_MS = 5_000

/** Other agents: their trust level and whether they are reachable. */
export const PeersView = () => {
  const { value, problem } = usePolled<{ readonly peers: readonly PagePeer[] }>('peers', {}, POLL_MS)
  return (
    <>
      <h2>Peers</h2>
      {problem !== null && (
        <p class="warning">
          <Name text={problem} />
        </p>
      )}
      {value?.peers.length === 0 && <p class="quiet">No contacts and no discovered peers.</p>}
      {value?.peers.map((peer) => (
        <article key={`${peer.agent_id} ${peer.machine_id}`} class="card small">
          <header>
            <h3>{peer.name === null ? <span class="quiet">no name</span> : <Name text={peer.name} />}</h3>
            <span class={`state ${peer.state}`}>
              <Name text={peer.state} />
            </span>
            <span class="quiet">
              <Name text={peer.trust ?? 'no contact'} />
            </span>
          </header>
          <p class="mono quiet">
            agent <Name text={peer.agent_id ?? '?'} />
            {peer.machine_id !== null && (
              <>
                <br />
                machine <Name text={peer.machine_id} />
              </>
            )}
          </p>
        </article>
      ))}
    </>
  )
}
