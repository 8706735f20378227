import { counted } from '../../../base/format.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { meshSizeText } from '../../../doctor/mesh-check.ts'
import { type AgentAnswer, CONTACTS, type ContactsAnswer, type PeerJson, PEERS } from '../../../protocol/api-answers.ts'
import type { CliContext } from '../context.ts'
import { type Drawing, drawingFor, widestOf } from '../drawing.ts'
import { printAnswer, printHint, printLine, printTable } from '../print.ts'

/** Limit on peers in the picture. The nearest are drawn. */
const MAX_DRAWN_PEERS = 100
const MAX_NAME_COLUMNS = 24
/** Columns of `12345 ms` and the space before it. */
const RTT_COLUMNS = 9
const MAX_BAR_COLUMNS = 30
/** Columns of an ID's beginning, and the width of a terminal with room for it. */
const [ID_COLUMNS, LEAST_FOR_ID] = [12, 72]

/** A drawn peer; `name` is safe to print. */
export interface DrawnPeer extends Pick<PeerJson, 'linked' | 'connected' | 'rtt_ms' | 'agent_id' | 'last_seen'> {
  readonly name: string
}

export interface PeersGraph {
  /** Name of this daemon. */
  readonly self: string
  readonly peers: readonly DrawnPeer[]
}

type State = 'linked' | 'connected' | 'announced'
const drawnState = ({ linked, connected }: DrawnPeer): State => (linked ? 'linked' : connected ? 'connected' : 'announced')
const STATES: readonly State[] = ['linked', 'connected', 'announced']
const STATE_WIDTH = 9
const COLOURS = { linked: 'green', connected: 'cyan', announced: 'dim' } as const

/** Linked peers before connected before announced ones, each by distance. */
const nearestFirst = (one: DrawnPeer, other: DrawnPeer): number =>
  STATES.indexOf(drawnState(one)) - STATES.indexOf(drawnState(other)) || (one.rtt_ms ?? Infinity) - (other.rtt_ms ?? Infinity) || 0

const farText = ({ rtt_ms, last_seen }: DrawnPeer): string =>
  rtt_ms !== null ? `${rtt_ms} ms` : last_seen === null ? '' : `seen ${last_seen.slice(0, 19).replace('T', ' ')}`

/** A star: this daemon, with a bar for each peer that is as long as its round trip takes. */
export const peersGraph = ({ self, peers }: PeersGraph, { columns, glyphs, paint, cell }: Drawing): string[] => {
  const drawn = peers.toSorted(nearestFirst).slice(0, MAX_DRAWN_PEERS)
  const lines = { linked: glyphs.proven, connected: glyphs.connected, announced: glyphs.announced }
  const nameWidth = widestOf(
    drawn.map(({ name }) => name),
    Math.min(MAX_NAME_COLUMNS, Math.floor(columns / 3)),
  )
  const idWidth = columns >= LEAST_FOR_ID ? ID_COLUMNS : 0
  const fixed = 5 + nameWidth + 2 + STATE_WIDTH + 2 + (idWidth === 0 ? 0 : idWidth + 2)
  const barRoom = Math.min(MAX_BAR_COLUMNS, Math.max(0, columns - fixed - RTT_COLUMNS))
  const farthest = Math.max(1, ...drawn.map(({ rtt_ms }) => rtt_ms ?? 0))
  const rows = drawn.map((peer, at) => {
    const state = drawnState(peer)
    const bar = peer.rtt_ms === null ? '' : glyphs.bar.repeat(Math.round((peer.rtt_ms / farthest) * barRoom))
    const id = idWidth === 0 ? '' : `${cell(peer.agent_id?.slice(0, idWidth) ?? '-', idWidth)}  `
    const far = cell(farText(peer), columns - fixed - (bar === '' ? 0 : bar.length + 1)).trimEnd()
    const line = `${at === drawn.length - 1 && drawn.length === peers.length ? glyphs.last : glyphs.branch}${lines[state]}`
    const told = `${cell(peer.name, nameWidth)}  ${paint(COLOURS[state], cell(state, STATE_WIDTH))}  ${id}`
    return `${paint(COLOURS[state], line)}  ${told}${bar === '' ? '' : `${paint(COLOURS[state], bar)} `}${far}`.trimEnd()
  })
  const left = peers.length - drawn.length
  const key = `${lines.linked} linked, ${lines.connected} connected, ${lines.announced} discovered, ${glyphs.bar} round trip`
  return [
    cell(self, columns).trimEnd(),
    ...rows,
    ...(left > 0 ? [`${glyphs.last}${glyphs.announced}  ${left} more: x0x peers`] : []),
    paint('dim', cell(key, columns).trimEnd()),
  ]
}

const stateOf = (peer: PeerJson): string => (peer.linked ? 'linked' : peer.connected ? 'connected' : 'announced')

/** The contact name. A name that an unlisted peer gives itself is quoted. */
const nameOf = (peer: PeerJson, { contacts }: ContactsAnswer): string =>
  contacts.find((contact) => contact.agent_id === peer.agent_id)?.name ?? (peer.name === null ? '-' : JSON.stringify(peer.name))

/** The route of its connection. */
const wayOf = ({ connected, relayed_by: relay }: PeerJson, { contacts }: ContactsAnswer): string => {
  if (!connected) return '-'
  if (relay === null) return 'direct'
  const name = contacts.find((contact) => contact.agent_id === relay.agent_id)?.name
  return `relayed by ${name ?? relay.agent_id?.slice(0, 12) ?? `machine ${relay.machine_id.slice(0, 12)}`}`
}

/** `x0x peers`: connected and discovered peers. */
export const runPeers = async (context: CliContext, line: CommandLine): Promise<number> => {
  const graph = line.has('graph')
  const answer = await context.api.read({ method: 'GET', path: '/peers' }, PEERS)
  return printAnswer(context, answer, async () => {
    await (graph ? drawPeers : printPeers)(context, answer.peers)
    if (answer.draining === true) await printLine(context, 'this daemon is draining: it restarts and accepts no new run until then')
    if (!graph) await printLine(context, meshSizeText(answer.mesh, counted(answer.mesh.standing, 'persistent connection')))
  })
}

const drawPeers = async (context: CliContext, peers: readonly PeerJson[]): Promise<unknown> => {
  if (peers.length === 0) return printPeers(context, peers)
  const [contacts, agent] = await Promise.all([
    context.api.read({ method: 'GET', path: '/contacts' }, CONTACTS),
    context.api.json<AgentAnswer>({ method: 'GET', path: '/agent' }),
  ])
  const named = peers.map((peer) => ({ ...peer, name: nameOf(peer, contacts) }))
  const self = `${agent.name}, agent ${agent.agent_id.slice(0, 12)} on machine ${agent.machine_id.slice(0, 12)}`
  const lines = peersGraph({ self, peers: named }, drawingFor(context.stdout, context.env))
  return write(context.stdout, `${lines.join('\n')}\n`)
}

const printPeers = async (context: CliContext, peers: readonly PeerJson[]): Promise<unknown> => {
  if (peers.length === 0) return printHint(context, 'no peers; import a card (x0x contacts import LINK), or start x0xd with --bootstrap')
  const contacts = await context.api.read({ method: 'GET', path: '/contacts' }, CONTACTS)
  const rows = peers.map((peer) => [
    nameOf(peer, contacts),
    stateOf(peer),
    peer.agent_id?.slice(0, 12) ?? '-',
    peer.machine_id.slice(0, 12),
    wayOf(peer, contacts),
    peer.rtt_ms === null ? '-' : `${peer.rtt_ms} ms`,
    peer.last_heard ?? '-',
    peer.last_seen ?? '-',
    peer.addresses[0] ?? '-',
  ])
  return printTable(context, ['NAME', 'STATE', 'AGENT', 'MACHINE', 'WAY', 'RTT', 'HEARD', 'SEEN', 'ADDRESS'], rows)
}
