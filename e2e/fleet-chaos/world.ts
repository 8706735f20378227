import { existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { silentLogger } from '../../src/base/log.ts'
import type { VerifiedCard } from '../../src/identity/card.ts'
import { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { CuttableProxy } from '../../test/support/cuttable-proxy.ts'
import { allowIn, cardIn, introduceIn } from '../../test/support/host-files.ts'
import { wholeLines } from '../../test/support/journal.ts'
import { announceNowhere, MeshOfDaemons, type JournalLineJson, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { startPeer } from '../../test/support/peer.ts'
import { SCRIPTS, type HostPlan } from './plan.ts'

const portOf = (multiaddr: string): number => Number(multiaddr.split('/')[4])

/** One host of either kind. */
export interface Host extends HostPlan {
  readonly dir: string
  readonly agentId: string
  readonly daemon: TestDaemon | null
  readonly proxy: CuttableProxy | null
  start(): Promise<void>
}

interface Requester {
  readonly card: VerifiedCard
  readonly deed: string
}

/** Makes the host trust the requester, and allows the command or another one. */
const prepare = async (dir: string, { fate }: HostPlan, { card, deed }: Requester): Promise<void> => {
  await introduceIn(dir, [{ card, name: 'requester' }], 'trusted')
  await allowIn(dir, [card], [fate === 'denied' ? '/bin/false' : deed], dir)
  await writeFile(join(dir, 'fate'), SCRIPTS[fate])
}

/** A requester that is a real daemon, and hosts of both kinds that know only the requester. */
export class FleetWorld {
  readonly mesh: MeshOfDaemons
  readonly requester: TestDaemon
  /** The command. It records in the directory of its host that it ran, and runs the script of its fate. */
  readonly deed: string
  readonly hosts: Host[] = []
  /** Shared by all hosts in this process, because one cleanup process per host would be expensive. */
  readonly #cleanup = new CleanupProcess({ log: silentLogger })
  readonly #endings: (() => unknown)[] = []

  private constructor(mesh: MeshOfDaemons, deed: string) {
    this.mesh = mesh
    this.requester = mesh.add('requester')
    this.deed = deed
  }

  /** Starts all hosts except the dead ones. */
  static async create(t: TestContext, plans: readonly HostPlan[]): Promise<FleetWorld> {
    const mesh = await MeshOfDaemons.create('x0x-fleet-chaos-')
    const world = new FleetWorld(mesh, await mesh.program('deed', 'echo ran >> ran\n. ./fate'))
    world.#cleanup.start()
    t.after(async () => world.#stop())
    await announceNowhere(world.requester)
    const card = await cardIn(world.requester.dir, 'requester', () => [])
    for (const plan of plans) world.hosts.push(await world.#host(plan, { card, deed: world.deed }))
    const living = world.hosts.filter(({ fate }) => fate !== 'dead')
    await Promise.all(living.filter(({ isReal }) => isReal).map(async (host) => host.start()))
    for (const host of living) if (!host.isReal) await host.start()
    await world.#introduce()
    await world.requester.start()
    return world
  }

  /** Stops everything that has files in the directory of the mesh before it removes that directory. */
  async #stop(): Promise<void> {
    try {
      await Promise.all(this.#endings.map(async (ending) => ending()))
      await this.#cleanup.stop()
    } finally {
      await this.mesh.stop()
    }
  }

  host(name: string): Host {
    return this.hosts.find((host) => host.name === name)!
  }

  async #host(plan: HostPlan, requester: Requester): Promise<Host> {
    const daemon = this.mesh.add(plan.name)
    await daemon.keepPort()
    await prepare(daemon.dir, plan, requester)
    if (!plan.isReal) return this.#peer(plan, daemon)
    await announceNowhere(daemon)
    const proxy = await new CuttableProxy(() => portOf(daemon.multiaddr)).listen()
    this.#endings.push(async () => proxy.close())
    const { agentId } = await cardIn(daemon.dir, plan.name, () => [])
    return { ...plan, dir: daemon.dir, agentId, daemon, proxy, start: async () => daemon.start() }
  }

  async #peer(plan: HostPlan, { dir, multiaddr }: TestDaemon): Promise<Host> {
    const { agentId } = await cardIn(dir, plan.name, () => [])
    const after = (ending: unknown): void => void this.#endings.push(ending as () => unknown)
    const init = { name: plan.name, dataDir: dir, listen: multiaddr, cleanup: this.#cleanup, passive: true }
    const start = async (): Promise<void> => void (await startPeer({ after }, init))
    return { ...plan, dir, agentId, daemon: null, proxy: null, start }
  }

  /** Writes the contacts of the requester before it starts. */
  async #introduce(): Promise<void> {
    const cards = this.hosts.map(async ({ name, dir, proxy }) => {
      const way = proxy === null ? this.mesh.daemons.find((daemon) => daemon.dir === dir)!.multiaddr : `/ip4/127.0.0.1/tcp/${proxy.port}`
      return { card: await cardIn(dir, name, (peerId) => [`${way}/p2p/${peerId}`]), name }
    })
    await introduceIn(this.requester.dir, await Promise.all(cards), 'known')
  }
}

/** How many times the command ran on this host. */
export const deedsOf = async ({ dir }: Host): Promise<number> =>
  (await readFile(join(dir, 'ran'), 'utf8').catch(() => '')).split('ran').length - 1

export const hasBegun = ({ dir }: Host): boolean => existsSync(join(dir, 'ran'))

/** Audit log of the host, read from the disk. */
export const journalOf = async ({ dir }: Host): Promise<JournalLineJson[]> =>
  wholeLines(await readFile(join(dir, 'exec.log'), 'utf8').catch(() => '')).map((line) => JSON.parse(line) as JournalLineJson)
