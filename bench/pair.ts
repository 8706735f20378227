import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import type { MeshOfDaemons, TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { RestClient } from '../test/support/rest-client.ts'

export const TRUE = ['/bin/true']
/** Maximum number of concurrent runs, in total and per agent. */
export const WIDTH = 32

export const zeros = (bytes: number): string[] => ['head', '-c', String(bytes), '/dev/zero']

export interface Pair {
  readonly alice: TestDaemon
  readonly bob: TestDaemon
  /** A client of alice's REST API. */
  readonly client: RestClient
}

export const restClientOf = async ({ dir }: TestDaemon): Promise<RestClient> =>
  new RestClient({ socketPath: join(dir, 'api.sock'), token: (await readFile(join(dir, 'api-token'), 'utf8')).trim() })

/** Makes contacts of both. Bob allows alice these commands, `WIDTH` at once. Starts alice unless she is running. */
export const befriend = async (alice: TestDaemon, bob: TestDaemon, commands: readonly (readonly string[])[]): Promise<void> => {
  if (!alice.running) await alice.start()
  await bob.start()
  const caps = `max_stdout_bytes = ${2 ** 32}\nmax_concurrent_per_agent = ${WIDTH}\nmax_concurrent_total = ${WIDTH}`
  await bob.writeAcl([{ agent: alice, commands }], caps)
  await bob.restart()
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
}

export const startPair = async (mesh: MeshOfDaemons, commands: readonly (readonly string[])[] = [TRUE]): Promise<Pair> => {
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  await befriend(alice, bob, commands)
  return { alice, bob, client: await restClientOf(alice) }
}

/** Alice may run the same commands on bob, with the default containment, and on carol, with process groups only. */
export const startTrio = async (mesh: MeshOfDaemons, commands: readonly (readonly string[])[]): Promise<Pair & { carol: TestDaemon }> => {
  const pair = await startPair(mesh, commands)
  const carol = mesh.add('carol', { env: { X0X_CONTAINMENT: 'group' } })
  await befriend(pair.alice, carol, commands)
  return { ...pair, carol }
}
