import { systemClock } from '../src/base/clock.ts'
import { silentLogger } from '../src/base/log.ts'
import { randomBytes } from '../src/identity/hash.ts'
import { machineKeyOf } from '../src/identity/machine-key.ts'
import { MeshNode } from '../src/mesh/node.ts'
import { until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

/** Other machines that connect to a daemon and stay: connections without an agent. */
export class BarePeers {
  readonly #daemon: TestDaemon
  readonly #nodes: MeshNode[] = []

  constructor(daemon: TestDaemon) {
    this.#daemon = daemon
  }

  /** Until there are so many, each of them counted by the daemon. */
  async grow(count: number): Promise<void> {
    const { addresses } = await this.#daemon.json<{ addresses: string[] }>('id')
    while (this.#nodes.length < count) {
      const node = new MeshNode(
        { clock: systemClock, machineKey: machineKeyOf(randomBytes(32)), log: silentLogger },
        { listen: [], mdns: false },
      )
      await node.start()
      // A daemon takes so many connections of one host in a second, and no more.
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
