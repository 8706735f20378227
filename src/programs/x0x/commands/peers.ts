import { counted } from '../../../base/counted.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { meshSizeText } from '../../../doctor/mesh-size.ts'
import type { AgentAnswer, ContactsAnswer, MeshCounts, PeerJson } from '../../../protocol/api-answers.ts'
import { write } from '../../../supervision/program-output.ts'
import type { CliContext } from '../context.ts'
import { drawingFor } from '../drawing.ts'
import { printAnswer, printLine, printTable } from '../print.ts'
import { peersGraph } from './peers-graph.ts'

const stateOf = (peer: PeerJson): string => (peer.linked ? 'linked' : peer.connected ? 'connected' : 'announced')

/** Our own name for it; what a stranger calls itself stands in quotes. */
const nameOf = (peer: PeerJson, { contacts }: ContactsAnswer): string =>
  contacts.find((contact) => contact.agent_id === peer.agent_id)?.name ?? (peer.name === null ? '-' : JSON.stringify(peer.name))

/** How its connection leads there. */
const wayOf = ({ connected, relayed_by: relay }: PeerJson, { contacts }: ContactsAnswer): string => {
  if (!connected) return '-'
  if (relay === null) return 'direct'
  const name = contacts.find((contact) => contact.agent_id === relay.agent_id)?.name
  return `relayed by ${name ?? relay.agent_id?.slice(0, 12) ?? `machine ${relay.machine_id.slice(0, 12)}`}`
}

/** `x0x peers`: who is connected and who was discovered. */
export const runPeers = async (context: CliContext, line: CommandLine): Promise<number> => {
  const graph = line.has('graph')
  const answer = await context.api.json<{ peers: readonly PeerJson[]; mesh: MeshCounts }>({ method: 'GET', path: '/peers' })
  return printAnswer(context, answer, async () => {
    await (graph ? drawPeers : printPeers)(context, answer.peers)
    if (!graph) await printLine(context, meshSizeText(answer.mesh, counted(answer.mesh.standing, 'standing connection')))
  })
}

const drawPeers = async (context: CliContext, peers: readonly PeerJson[]): Promise<unknown> => {
  if (peers.length === 0) return printPeers(context, peers)
  const [contacts, agent] = await Promise.all([
    context.api.json<ContactsAnswer>({ method: 'GET', path: '/contacts' }),
    context.api.json<AgentAnswer>({ method: 'GET', path: '/agent' }),
  ])
  const named = peers.map((peer) => ({ ...peer, name: nameOf(peer, contacts) }))
  const self = `${agent.name}, agent ${agent.agent_id.slice(0, 12)} on machine ${agent.machine_id.slice(0, 12)}`
  const lines = peersGraph({ self, peers: named }, drawingFor(context.stdout, context.env))
  return write(context.stdout, `${lines.join('\n')}\n`)
}

const printPeers = async (context: CliContext, peers: readonly PeerJson[]): Promise<unknown> => {
  if (peers.length === 0) return printLine(context, 'no peers; import a card (x0x contacts import LINK) or give the daemon --bootstrap')
  const contacts = await context.api.json<ContactsAnswer>({ method: 'GET', path: '/contacts' })
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
