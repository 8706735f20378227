import type { PeerState } from '../../protocol/page-lists.ts'

const TEXTS: Readonly<Record<PeerState, readonly [text: string, meaning: string]>> = {
  linked: ['linked', 'connected, and both agents and machines are proven'],
  connected: ['connected', 'connected; the agent is not proven yet'],
  announced: ['announced', 'not connected; it announced itself lately'],
  not_seen: ['not seen', 'not connected, and not heard of'],
}

/** The state of a peer: a colour and a sign, and the same in words. */
export const State = ({ state, isLong = false }: { readonly state: PeerState; readonly isLong?: boolean }) => (
  <span class={`state ${state}`} title={TEXTS[state][1]}>
    {TEXTS[state][0]}
    {isLong && <span class="quiet"> ({TEXTS[state][1]})</span>}
  </span>
)
