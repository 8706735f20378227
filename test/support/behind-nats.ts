import type { TestContext } from 'node:test'

import { MeshOfDaemons, until, type AclEntry, type TestDaemon } from './mesh-of-daemons.ts'
import { NatNetworks } from './nat-networks.ts'

export interface BehindNats {
  readonly networks: NatNetworks
  readonly mesh: MeshOfDaemons
  /** The relay, which trusts both. */
  readonly ray: TestDaemon
  readonly alice: TestDaemon
  readonly bob: TestDaemon
}

const addresses = async (daemon: TestDaemon): Promise<string[]> => (await daemon.get<{ addresses: string[] }>('/agent')).addresses

/** Alice is behind one NAT and bob behind another. She may run `commandsOf(mesh)` on bob, and only has his address via the relay. */
export const behindNats = async (
  t: TestContext,
  commandsOf: (mesh: MeshOfDaemons) => AclEntry['commands'],
  bobsEnv: Readonly<Record<string, string>> = {},
): Promise<BehindNats> => {
  const networks = new NatNetworks()
  const mesh = await MeshOfDaemons.create()
  t.after(async () => {
    await mesh.stop()
    await networks.end()
  })
  await networks.make()
  const ray = networks.daemon(mesh, 'ray', 'relay', { X0X_RELAY: 'true' })
  await ray.start()
  const env = { X0X_RELAYS: `${networks.relayAddress}${await ray.peerSuffix()}` }
  const alice = networks.daemon(mesh, 'alice', 'left', env)
  const bob = networks.daemon(mesh, 'bob', 'right', { ...env, ...bobsEnv })
  await alice.start()
  await bob.writeAcl([{ agent: alice, commands: commandsOf(mesh) }])
  await bob.start()
  for (const one of [alice, bob]) {
    await one.meet(ray, 'trusted')
    await ray.meet(one, 'trusted')
  }
  const relayed = await until('bob is reached through ray', async () => {
    const found = (await addresses(bob)).filter((address) => address.includes('/p2p-circuit/'))
    return found.length > 0 && found
  })
  await alice.take(await bob.cardVia(relayed), 'bob', 'known')
  await bob.take(await alice.cardVia([]), 'alice', 'trusted')
  return { networks, mesh, ray, alice, bob }
}
