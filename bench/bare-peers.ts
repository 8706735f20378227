import { systemClock } from '../src/base/clock.ts'
import { silentLogger } from '../src/base/log.ts'
import { randomBytes } from '../src/identity/hash.ts'
import { machineKeyOf, type MachineKey } from '../src/identity/machine-key.ts'
import { MeshNode } from '../src/mesh/node.ts'
import { toHex } from '../src/protocol/ids.ts'
import { until, type AclEntry, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { TRUE } from './pair.ts'

/** An ACL entry for another agent on this machine. */
export const entryFor = (machineId: string): AclEntry => ({
  description: 'somebody else',
  agent: { agentId: toHex(randomBytes(32)), machineId },
  commands: [TRUE],
})

/** Other machines that connect to a daemon and stay connected. Their connections have no agent. */
export class BarePeers {
  readonly #daemon: TestDaemon
  readonly #keys: readonly MachineKey[]
  readonly #nodes: MeshNode[] = []

  constructor(daemon: TestDaemon, most: number) {
    this.#daemon = daemon
    this.#keys = Array.from({ length: most }, () => machineKeyOf(randomBytes(32)))
  }

  /** Entries for the daemon's ACL. It accepts only 64 unlisted machines per host, and all of these share one host. */
  get aclEntries(): readonly AclEntry[] {
    return this.#keys.map(({ machineId }) => entryFor(machineId))
  }

  /** Connects machines until the daemon counts this number. */
  async grow(count: number): Promise<void> {
    const { addresses } = await this.#daemon.json<{ addresses: string[] }>('id')
    for (const machineKey of this.#keys.slice(this.#nodes.length, count)) {
      const node = new MeshNode({ clock: systemClock, machineKey, log: silentLogger }, { listen: [], mdns: false, acceptsUnlisted: true })
      await node.start()
      // A daemon limits the new connections per host and second.
      await until('a peer connects', async () =>
        node.dial(this.#daemon.machineId, addresses, AbortSignal.timeout(10_000)).then(
          () => true,
          () => false,
        ),
      )
      this.#nodes.push(node)
    }
    await until('every connection is counted', async () => (await this.#counted()) >= count)
  }

  async stop(): Promise<void> {
    await Promise.all(this.#nodes.splice(0).map(async (node) => node.stop()))
  }

  async #counted(): Promise<number> {
    return (await this.#daemon.json<{ connections: unknown[] }>('diagnostics', 'mesh')).connections.length
  }
}
