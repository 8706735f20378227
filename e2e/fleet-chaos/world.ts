import { existsSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { loadOrCreateAgentKey } from '../../src/identity/agent-key.ts'
import { signCard, verifyCard, type VerifiedCard } from '../../src/identity/card.ts'
import { loadOrCreateMachineKey } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/peer-id.ts'
import { CARD_DOMAIN } from '../../src/protocol/card.ts'
import { Contacts } from '../../src/trust/contacts.ts'
import { CuttableProxy } from '../../test/support/cuttable-proxy.ts'
import { wholeLines } from '../../test/support/journal.ts'
import { announceNowhere, MeshOfDaemons, type JournalLineJson, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { startPeer } from '../../test/support/peer.ts'
import { SCRIPTS, type HostPlan } from './plan.ts'

const CARD_MS = 3_600_000
const portOf = (multiaddr: string): number => Number(multiaddr.split('/')[4])

/** One host, whichever it is. */
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

/** The card of the agent and machine that have their keys there, as it may be imported; made where they are not there yet. */
const cardIn = async (dir: string, name: string, addresses: (peerId: string) => readonly string[]): Promise<VerifiedCard> => {
  await mkdir(dir, { recursive: true, mode: 0o700 })
  const [signer, machine] = [await loadOrCreateAgentKey(dir), await loadOrCreateMachineKey(dir)]
  const now = Date.now()
  const body = {
    version: 1 as const,
    agent_public_key: signer.publicKey,
    machine_id: machine.machineId,
    name,
    addresses: [...addresses(peerIdOf(machine.machineId))],
    issued_at_ms: now,
    expires_at_ms: now + CARD_MS,
  }
  return verifyCard(await signCard(signer, body, CARD_DOMAIN), CARD_DOMAIN, now)
}

const openContacts = async (dir: string): Promise<Contacts> => {
  const contacts = new Contacts({ path: join(dir, 'contacts.json') })
  await contacts.load()
  return contacts
}

/** Trusts the requester, and lets it run the deed, or something else. */
const prepare = async (dir: string, { fate }: HostPlan, { card, deed }: Requester): Promise<void> => {
  await mkdir(join(dir, 'runs'), { recursive: true, mode: 0o700 })
  const contacts = await openContacts(dir)
  await contacts.importCard(card, { name: 'requester', trust: 'trusted' })
  await contacts.pin(card.agentId, card.machineId)
  const argv = fate === 'denied' ? '/bin/false' : deed
  const acl = [
    `[exec]\nenabled = true\naudit_log_path = ${JSON.stringify(join(dir, 'exec.log'))}\ndefault_cwd = ${JSON.stringify(dir)}`,
    `[[exec.allow]]\nagent_id = "${card.agentId}"\nmachine_id = "${card.machineId}"`,
    `[[exec.allow.commands]]\nargv = [${JSON.stringify(argv)}]\n`,
  ]
  await writeFile(join(dir, 'exec-acl.toml'), acl.join('\n'), { mode: 0o600 })
  await writeFile(join(dir, 'fate'), SCRIPTS[fate])
}

/** A requester that is a real daemon, and hosts of both kinds that know nobody else. */
export class FleetWorld {
  readonly mesh: MeshOfDaemons
  readonly requester: TestDaemon
  /** The command: says in the directory of its host that it ran, and meets its fate. */
  readonly deed: string
  readonly hosts: Host[] = []
  readonly #endings: (() => unknown)[] = []

  private constructor(mesh: MeshOfDaemons, deed: string) {
    this.mesh = mesh
    this.requester = mesh.add('requester')
    this.deed = deed
  }

  /** All but the dead ones are up. */
  static async create(t: TestContext, plans: readonly HostPlan[]): Promise<FleetWorld> {
    const mesh = await MeshOfDaemons.create('x0x-fleet-chaos-')
    const world = new FleetWorld(mesh, await mesh.program('deed', 'echo ran >> ran\n. ./fate'))
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

  /** What has its files in a directory of the mesh ends before it. */
  async #stop(): Promise<void> {
    try {
      await Promise.all(this.#endings.map(async (ending) => ending()))
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
    const start = async (): Promise<void> => void (await startPeer({ after }, { name: plan.name, dataDir: dir, listen: multiaddr }))
    return { ...plan, dir, agentId, daemon: null, proxy: null, start }
  }

  /** Into the file of a daemon that does not run yet. */
  async #introduce(): Promise<void> {
    const contacts = await openContacts(this.requester.dir)
    for (const { name, dir, proxy } of this.hosts) {
      const way = proxy === null ? this.mesh.daemons.find((daemon) => daemon.dir === dir)!.multiaddr : `/ip4/127.0.0.1/tcp/${proxy.port}`
      await contacts.importCard(await cardIn(dir, name, (peerId) => [`${way}/p2p/${peerId}`]), { name, trust: 'known' })
    }
  }
}

/** How often the deed was done there. */
export const deedsOf = async ({ dir }: Host): Promise<number> =>
  (await readFile(join(dir, 'ran'), 'utf8').catch(() => '')).split('ran').length - 1

export const hasBegun = ({ dir }: Host): boolean => existsSync(join(dir, 'ran'))

/** Its journal as it is on the disk. */
export const journalOf = async ({ dir }: Host): Promise<JournalLineJson[]> =>
  wholeLines(await readFile(join(dir, 'exec.log'), 'utf8').catch(() => '')).map((line) => JSON.parse(line) as JournalLineJson)
