import { systemClock } from '../../src/base/clock.ts'
import { isAppError } from '../../src/base/errors.ts'
import { silentLogger } from '../../src/base/log.ts'
import { ExecClient } from '../../src/exec/client.ts'
import { RequesterCounters } from '../../src/exec/counters.ts'
import { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { answerQuestions } from '../../test/support/host-process.ts'
import { newLifecycleLog } from '../../test/support/lifecycle.ts'
import { startPeer, type Peer } from '../../test/support/peer.ts'
import { until } from '../../test/support/processes.ts'

/** Nodes to start, or to restart if they run, with their bootstrap peer and their number of persistent connections. */
export interface Starting {
  readonly nodes: readonly { readonly number: number; readonly dir: string }[]
  readonly bootstrap: readonly string[]
  readonly standing: number
}

/** A command that one node runs on the agent of another node. */
export interface Errand {
  readonly asker: number
  readonly agentId: string
  readonly argv: readonly string[]
}

/** `look` is answered once each node has all its persistent connections. */
export type Question = { readonly start: Starting } | { readonly run: readonly Errand[] } | 'look'

export interface Look {
  readonly number: number
  readonly addresses: readonly string[]
  /** Number of machines to stay connected with, and of machines connected now. */
  readonly standing: number
  readonly connected: number
}

/** Result of an errand. */
export interface Done {
  readonly machineId: string | null
  readonly stdout: string
}

const peers = new Map<number, Peer>()

/** Starts one node after another. If many started at once, no peer would have the cards yet, and they would dial one another for them. */
const start = async ({ nodes, bootstrap, standing }: Starting, cleanup: CleanupProcess): Promise<Look[]> => {
  for (const { number, dir } of nodes) {
    await peers.get(number)?.stop()
    // The process stops all nodes at its end.
    const t = { after: () => undefined }
    peers.set(number, await startPeer(t, { name: `n${number}`, dataDir: dir, bootstrap, standing, cleanup }))
  }
  return looks()
}

const looks = (): Look[] =>
  [...peers].map(([number, { node, reconnect }]) => ({
    number,
    addresses: node.addresses(),
    standing: reconnect.status().length,
    connected: new Set(node.connections().map(({ machineId }) => machineId)).size,
  }))

/** Runs the command once the agent is reachable. The node must first learn its address, or that it has moved. */
const run = async ({ asker, agentId, argv }: Errand): Promise<Done> => {
  const { book, links, executorClient } = peers.get(asker)!
  const counters = new RequesterCounters()
  const client = new ExecClient({
    clock: systemClock,
    counters,
    executor: executorClient,
    lifecycle: newLifecycleLog(),
    links,
    traces: null,
  })
  const spec = { agent_id: agentId, argv, stdin: null, timeout_ms: null, cwd: null, clamp: false }
  const output: Uint8Array[] = []
  let machineId: string | null = null
  await until(async () => {
    if (!book.candidates(agentId).some(({ addresses }) => addresses.length > 0)) return false
    try {
      const outcome = await client.run(spec, { event: (event) => void (event.type === 'stdout' && output.push(event.data)) })
      machineId = outcome.machine_id
      return true
    } catch (error) {
      if (isAppError(error, 'peer_unreachable')) return false
      throw error
    }
  })
  return { machineId, stdout: Buffer.concat(output).toString() }
}

// A process that runs some of many nodes, each with the network process and executor process of a daemon in one. One process for all nodes
// would be limited by its single thread.
await answerQuestions(async () => {
  const cleanup = new CleanupProcess({ log: silentLogger })
  cleanup.start()
  const answer = async (question: Question): Promise<unknown> => {
    if (question === 'look') {
      await until(() => [...peers.values()].every(({ reconnect }) => reconnect.status().every(({ connected }) => connected)))
      return looks()
    }
    if ('start' in question) return start(question.start, cleanup)
    return Promise.all(question.run.map(run))
  }
  const stop = async (): Promise<void> => {
    await Promise.all([...peers.values()].map(async (peer) => peer.stop()))
    await cleanup.stop()
  }
  return { answer, stop }
})
