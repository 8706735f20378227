import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { networkRights } from '../src/daemon/network-process.ts'
import { residentOf, until, type MeshOfDaemons } from '../test/support/mesh-of-daemons.ts'
import type { Row } from './report.ts'
import { RestClient } from '../test/support/rest-client.ts'
import { interleaved, summarize } from './stats.ts'

const TRUE = ['/bin/true']
const MB = 1e6
const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
const [EXECUTOR, NETWORK, BALLAST] = [here('../dist/x0xd.mjs'), here('../dist/x0xd-network.mjs'), here('ballast.cjs')]

/** A daemon in two processes of our own starting, its network half weighed down. */
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
  // Once as usual, for the ids that its ACL names.
  const first = mesh.add(`weighs-${ballastMb}`)
  await first.start()
  const { agentId, dir } = first
  await first.writeAcl([{ agent: first, commands: [TRUE] }])
  await first.stop()
  const [socket, api] = [join(dir, 'executor.sock'), join(dir, 'api.sock')]
  const acl = ['--exec-acl', first.aclFile, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
  const executor = started(process.execPath, [EXECUTOR, '--data-dir', dir, '--executor-socket', socket, ...acl])
  await once(executor.stdout!, 'data')
  const rights = [...networkRights('*'), '--allow-fs-write=*']
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

/** What no other process maps, in bytes: proc_pid_smaps(5). */
const privateOf = async (pid: number): Promise<number> => {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8')
  return [...text.matchAll(/^Private_(?:Clean|Dirty): +(\d+) kB$/gm)].reduce((sum, [, kb]) => sum + Number(kb) * 1024, 0)
}

const SMALL_MB = 10
const LARGE_MB = 500

/** What a run costs beside a small and a large network half, and what the two processes of an idle daemon hold. */
export const halves = async (mesh: MeshOfDaemons, rounds: number): Promise<Row[]> => {
  const idle = mesh.add('idle')
  await idle.start()
  const [executor, network] = [await residentOf(idle.pid), await residentOf(await idle.networkPid())]
  const own = await privateOf(idle.pid)
  await idle.stop()
  const small = await startWeighed(mesh, SMALL_MB)
  const large = await startWeighed(mesh, LARGE_MB)
  try {
    const cost = await interleaved(rounds, {
      small: async () => small.client.run(small.agentId, TRUE),
      large: async () => large.client.run(large.agentId, TRUE),
    })
    const beside = `run beside ${LARGE_MB} MB in the network half (${(large.networkBytes / MB).toFixed(0)} MB resident), own agent`
    return [
      {
        what: beside,
        unit: 'ms',
        ours: cost.large,
        theirs: cost.small,
        peer: `beside ${SMALL_MB} MB (${(small.networkBytes / MB).toFixed(0)} MB)`,
        target: '1 within noise',
      },
      { what: 'idle executor, resident', unit: 'MB', ours: summarize([executor / MB]), peer: '—', target: '≤ 60' },
      {
        what: 'idle executor, its own: without the pages of the runtime that both halves share',
        unit: 'MB',
        ours: summarize([own / MB]),
        peer: '—',
        target: '—',
      },
      { what: 'idle network half, resident', unit: 'MB', ours: summarize([network / MB]), peer: '—', target: '≤ 130' },
    ]
  } finally {
    await Promise.all([small.stop(), large.stop()])
  }
}
