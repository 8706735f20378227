import { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

import { startMeshPart } from './mesh-part.ts'

/** Input of the measured node. It is the only argument. */
export interface NodeInit {
  readonly bootstrap: readonly string[]
  readonly settleMs: number
  readonly measureMs: number
}

/** The cost of one second, summed over all connections. */
export interface NodeCost {
  readonly bytesIn: number
  readonly bytesOut: number
  readonly cpuMs: number
  readonly messages: number
  readonly heard: number
  readonly known: number
  readonly connections: number
}

const bytes = (): { read: number; written: number } => {
  // Node.js has no public list of its sockets.
  const handles = (process as unknown as { _getActiveHandles(): unknown[] })._getActiveHandles()
  const sockets = handles.filter((handle): handle is Socket => handle instanceof Socket && handle.remotePort !== undefined)
  return { read: sum(sockets.map((one) => one.bytesRead)), written: sum(sockets.map((one) => one.bytesWritten)) }
}
const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0)

const main = async ({ bootstrap, settleMs, measureMs }: NodeInit): Promise<NodeCost> => {
  const { node, knownAgents, presences, stop } = await startMeshPart(bootstrap)
  const judged = (): number => sum(Object.values(presences.counts))
  await sleep(settleMs)
  const [before, cpu, heard, at] = [bytes(), process.cpuUsage(), judged(), performance.now()]
  await sleep(measureMs)
  const [after, used, seconds] = [bytes(), process.cpuUsage(cpu), (performance.now() - at) / 1000]
  const cost = {
    bytesIn: (after.read - before.read) / seconds,
    bytesOut: (after.written - before.written) / seconds,
    cpuMs: (used.user + used.system) / 1000 / seconds,
    messages: (judged() - heard) / seconds,
    heard: presences.size,
    known: knownAgents.list().length,
    connections: node.connections().length,
  }
  await stop()
  return cost
}

process.stdout.write(`${JSON.stringify(await main(JSON.parse(process.argv[2] ?? '') as NodeInit))}\n`)
process.exit(0)
