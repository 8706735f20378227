import type { TestContext } from 'node:test'

import { announceNowhere, MeshOfDaemons, type TestDaemon } from './mesh-of-daemons.ts'
import type { TcpProxy } from './tcp-proxy.ts'

/** Two daemons. Alice knows only the address of a proxy to bob. */
export interface ProxiedPair<Proxy extends TcpProxy> {
  readonly mesh: MeshOfDaemons
  readonly alice: TestDaemon
  readonly bob: TestDaemon
  readonly proxy: Proxy
}

/** Creates both daemons without starting them. `proxyTo` creates the proxy to bob's port. */
export const proxiedPair = async <Proxy extends TcpProxy>(
  t: TestContext,
  proxyTo: (port: () => number) => Proxy,
): Promise<ProxiedPair<Proxy>> => {
  const mesh = await MeshOfDaemons.create()
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  const proxy = await proxyTo(() => Number(bob.multiaddr.split('/')[4])).listen()
  t.after(async () => {
    await mesh.stop()
    await proxy.close()
  })
  return { mesh, alice, bob, proxy }
}

/** Starts both. Alice may run `commands` on bob, who has no address of alice. `keys` go into bob's ACL. */
export const acquaint = async (
  { alice, bob, proxy }: ProxiedPair<TcpProxy>,
  commands: readonly (readonly string[])[],
  keys?: string,
  terminals = false,
): Promise<void> => {
  await meetOn({ alice, bob, proxy }, { commands, terminals }, keys)
}

/** Does the same with tables of files instead of commands. */
export const acquaintFiles = async ({ alice, bob, proxy }: ProxiedPair<TcpProxy>, tables: string): Promise<void> =>
  meetOn({ alice, bob, proxy }, { commands: [], keys: tables })

const meetOn = async (
  { alice, bob, proxy }: Omit<ProxiedPair<TcpProxy>, 'mesh'>,
  entry: { readonly commands: readonly (readonly string[])[]; readonly keys?: string; readonly terminals?: boolean },
  keys?: string,
): Promise<void> => {
  await Promise.all([alice, bob].map(announceNowhere))
  await alice.start()
  await bob.writeAcl([{ agent: alice, ...entry }], keys)
  await bob.start()
  // Alice dials a contact without trust only on demand.
  await alice.take(await bob.cardVia([`/ip4/127.0.0.1/tcp/${proxy.port}${await bob.peerSuffix()}`]), 'bob')
  await bob.take(await alice.cardVia([]), 'alice', 'trusted')
}
