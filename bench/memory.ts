import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { NETWORK_RIGHTS } from '../src/supervision/network-supervisor.ts'
import { residentOf, until, type MeshOfDaemons } from '../test/support/mesh-of-daemons.ts'
import { RestClient } from '../test/support/rest-client.ts'
import { BarePeers } from './bare-peers.ts'
import { TRUE } from './pair.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved, summarize } from './stats.ts'

const MB = 1e6
const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
const [EXECUTOR, NETWORK, BALLAST] = [here('../dist/x0xd.mjs'), here('../dist/x0xd-network.mjs'), here('ballast.cjs')]

/** A daemon whose two processes the bench starts itself, with more memory in the network process. */
interface Weighed {
  readonly client: RestClient
  readonly agentId: string
  readonly networkBytes: number
  stop(): Promise<void>
}

const started = (file: string, argv: readonly string[], env: NodeJS.ProcessEnv = {}): ChildProcess =>
  spawn(file, argv, { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, X0X_MDNS: 'false', ...env } })

const ended = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
}

const startWeighed = async (mesh: MeshOfDaemons, ballastMb: number): Promise<Weighed> => {
  // Start normally once, to get the IDs for its ACL.
  const first = mesh.add(`weighs-${ballastMb}`)
  await first.start()
  const { agentId, dir } = first
  await first.writeAcl([{ agent: first, commands: [TRUE] }])
  await first.stop()
  const [socket, api] = [join(dir, 'executor.sock'), join(dir, 'api.sock')]
  const acl = ['--exec-acl', first.aclFile, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
  const executor = started(process.execPath, [EXECUTOR, '--data-dir', dir, '--executor-socket', socket, ...acl])
  await once(executor.stdout!, 'data')
  const rights = [...NETWORK_RIGHTS, '--allow-fs-read=*', '--allow-fs-write=*']
  const argv = [...rights, '--require', BALLAST, NETWORK, '--executor', socket, '--api-socket', api]
  const network = started(process.execPath, argv, { X0X_BALLAST_MB: String(ballastMb) })
  await until('the API answers', async () => existsSync(api) && (await first.cli(['id'])).status === 0)
  const client = new RestClient({ socketPath: api, token: (await readFile(join(dir, 'api-token'), 'utf8')).trim() })
  const stop = async (): Promise<void> => {
    client.close()
    executor.kill('SIGTERM')
    await Promise.all([ended(executor), ended(network)])
  }
  return { client, agentId, networkBytes: await residentOf(network.pid!), stop }
}

/** Private memory in bytes (proc_pid_smaps(5)). */
const privateOf = async (pid: number): Promise<number> => {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8')
  return [...text.matchAll(/^Private_(?:Clean|Dirty): +(\d+) kB$/gm)].reduce((sum, [, kb]) => sum + Number(kb) * 1024, 0)
}

const SMALL_MB = 10
const LARGE_MB = 500

const figure = (what: string, bytes: number, target?: string): Row => ({
  what,
  unit: 'MB',
  ours: summarize([bytes / MB]),
  ...(target === undefined ? {} : { target }),
})

/** Measures the memory of an idle daemon and per connected peer, and how the size of the network process affects a run. */
export const memory = async ({ mesh, plan, after }: Stage): Promise<Omit<Section, 'title'>> => {
  const idle = mesh.add('idle')
  await idle.start()
  const [executor, network] = [await residentOf(idle.pid), await residentOf(await idle.networkPid())]
  const [ownExecutor, ownNetwork] = [await privateOf(idle.pid), await privateOf(await idle.networkPid())]
  const peers = new BarePeers(idle, plan.peers)
  after(async () => peers.stop())
  await idle.writeAcl(peers.aclEntries)
  await idle.restart()
  const alone = await idle.memory()
  await peers.grow(plan.peers)
  const perPeer = ((await idle.memory()) - alone) / plan.peers
  await peers.stop()
  await idle.stop()
  const small = await startWeighed(mesh, SMALL_MB)
  const large = await startWeighed(mesh, LARGE_MB)
  try {
    const cost = await interleaved(plan.rounds, {
      small: async () => small.client.run(small.agentId, TRUE),
      large: async () => large.client.run(large.agentId, TRUE),
    })
    const rows: Row[] = [
      figure('idle executor process, resident memory', executor, '≤ 60'),
      figure('idle executor process, private memory', ownExecutor, '≤ 30'),
      figure('idle network process, resident memory', network, '≤ 130'),
      figure('idle network process, private memory', ownNetwork, '≤ 58'),
      figure(`memory of each connected peer, of ${plan.peers}`, perPeer, '≤ 0.3'),
      {
        what: `run beside ${LARGE_MB} MB in the network process (${(large.networkBytes / MB).toFixed(0)} MB resident), on the own agent`,
        unit: 'ms',
        ours: cost.large,
        theirs: cost.small,
        peer: `beside ${SMALL_MB} MB (${(small.networkBytes / MB).toFixed(0)} MB)`,
        target: '1 within noise',
      },
    ]
    return {
      intro:
        'Private memory is that which no other process maps. The last row shows whether a run takes longer if the network process is large.',
      rows,
    }
  } finally {
    await Promise.all([small.stop(), large.stop()])
  }
}
