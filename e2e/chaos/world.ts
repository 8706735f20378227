import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { readContainmentRecord } from '../../src/process/process-trees.ts'
import { descendantsOf } from '../../src/process/descendant-tracker.ts'
import { birthOf } from '../../src/base/process-info.ts'
import { type Member } from '../../src/process/signals.ts'
import { CuttableProxy } from '../../test/support/cuttable-proxy.ts'
import { isRunning, MeshOfDaemons, until, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { RestClient } from '../../test/support/rest-client.ts'

export const REQUESTERS = ['alice', 'carol', 'dave'] as const
/** Less than the requesters try at once, so that some requests are denied. */
const PER_AGENT = 3
export const TOTAL = PER_AGENT * REQUESTERS.length
/** Number of starts that a service manager would try. A daemon may lose its first network process while it starts. */
const START_ATTEMPTS = 5
/** Bytes per unit of output. The programs count units because `<INT>` allows only numbers below a million. */
export const UNIT = 5
/** Length of the data that the programs print parts of. */
const DATA_BYTES = UNIT * 800_000

/**
 * Programs that run on bob. Each works in a directory of the test, so that leftovers can be found. Exit codes are passed plus one, because
 * `<INT>` is never 0. The last argument is the tag of the run.
 */
const PROGRAMS: Readonly<Record<string, string>> = {
  out: 'head -c "$(($1 * UNIT))" data; exit "$(($2 - 1))"',
  drip: 'for i in 0 1 2 3 4 5 6 7; do head -c "$(($1 * UNIT))" data; sleep 0.1; done; exit "$(($2 - 1))"',
  sum: 'sha256sum; exit "$(($1 - 1))"',
  nap: 'sleep "$(($1 / 10)).$(($1 % 10))"; exit "$(($2 - 1))"',
  deaf: "trap '' TERM; echo up; while :; do sleep 0.1; done",
  hold: 'echo up; while [ ! -e go ]; do sleep 0.05; done',
  escapee: "trap '' TERM HUP; exec >/dev/null 2>&1 </dev/null; while :; do sleep 0.1; done",
  escape: '( setsid ./escapee & ) & wait; echo left; sleep "$(($1 / 10)).$(($1 % 10))"; exit "$(($2 - 1))"',
}

const ARGUMENTS: Readonly<Record<string, number>> = { out: 3, drip: 3, sum: 2, nap: 3, deaf: 1, hold: 1, escape: 3 }

export interface Requester {
  readonly daemon: TestDaemon
  readonly proxy: CuttableProxy
  readonly client: RestClient
}

/** One target and three requesters. Each requester has its own path, which can be cut. */
export class World {
  readonly mesh: MeshOfDaemons
  readonly bob: TestDaemon
  readonly requesters: readonly Requester[]
  readonly data: Buffer
  /** Processes that existed when a process of their daemon was killed. They must end soon. */
  readonly doomed: { readonly member: Member; readonly of: string }[] = []
  /** Number of daemon starts that failed. */
  restartsInVain = 0
  /** Whether the containment holds processes that try to escape. */
  strong = false
  readonly #restarting = new Set<TestDaemon>()

  private constructor(mesh: MeshOfDaemons, bob: TestDaemon, requesters: readonly Requester[], data: Buffer) {
    this.mesh = mesh
    this.bob = bob
    this.requesters = requesters
    this.data = data
  }

  static async create(t: TestContext, seed: number): Promise<World> {
    const mesh = await MeshOfDaemons.create('x0x-chaos-')
    const bob = mesh.add('bob')
    const proxies: CuttableProxy[] = []
    const clients: RestClient[] = []
    t.after(async () => {
      for (const client of clients) client.close()
      try {
        await mesh.stop()
      } finally {
        await Promise.all(proxies.map(async (proxy) => proxy.close()))
      }
    })
    const data = createHash('shake256', { outputLength: DATA_BYTES }).update(String(seed)).digest()
    await mkdir(join(mesh.root, 'work'))
    await useTemporary(t, join(mesh.root, 'tmp'))
    await writeFile(join(mesh.root, 'work', 'data'), data)
    for (const [name, text] of Object.entries(PROGRAMS))
      await mesh.program(join('work', name), `cd ${mesh.root}/work\nUNIT=${UNIT}\n${text}`)
    const requesters: Requester[] = []
    for (const name of REQUESTERS) {
      const daemon = mesh.add(name)
      const proxy = await new CuttableProxy(() => Number(bob.multiaddr.split('/')[4])).listen()
      proxies.push(proxy)
      await announceNowhere(daemon)
      await daemon.start()
      const token = (await readFile(join(daemon.dir, 'api-token'), 'utf8')).trim()
      const client = new RestClient({ socketPath: join(daemon.dir, 'api.sock'), token })
      clients.push(client)
      requesters.push({ daemon, proxy, client })
    }
    const world = new World(mesh, bob, requesters, data)
    await world.#acquaint()
    return world
  }

  get daemons(): readonly TestDaemon[] {
    return this.mesh.daemons
  }

  program(name: string): string {
    return join(this.mesh.root, 'work', name)
  }

  async #acquaint(): Promise<void> {
    const { bob } = this
    const commands = [
      ['/bin/true', '<INT>'],
      ...Object.entries(ARGUMENTS).map(([name, count]) => [this.program(name), ...Array.from({ length: count }, () => '<INT>')]),
    ]
    await announceNowhere(bob)
    await bob.writeAcl(
      this.requesters.map(({ daemon }) => ({ agent: daemon, commands })),
      `max_concurrent_per_agent = ${PER_AGENT}\nmax_concurrent_total = ${TOTAL}\nmax_duration_secs = 30\nmax_stdin_bytes = 4194304\nmax_stdout_bytes = 33554432\nwarn_stdout_bytes = 33554432`,
    )
    await bob.start()
    for (const { daemon, proxy } of this.requesters) {
      const way = `/ip4/127.0.0.1/tcp/${proxy.port}${await bob.peerSuffix()}`
      await daemon.take(await bob.cardVia([way]), 'bob')
      await bob.take(await daemon.cardVia([]), daemon.name, 'trusted')
    }
    const record = await readContainmentRecord(join(bob.dir, 'containment.json'))
    this.strong = record !== null && record.in_force !== 'group'
  }

  /** PID of a daemon's current network process, or null if there is none. */
  async networkOf(daemon: TestDaemon): Promise<number | null> {
    if (!daemon.running) return null
    const pid = await daemon.networkPid().catch(() => 0)
    // The daemon may have ended in the meantime.
    return pid > 0 && daemon.running && descendantsOf(daemon.pid).some((member) => member.pid === pid) && isRunning(pid) ? pid : null
  }

  /** Records this process and its current descendants, which must be gone at the end. */
  doom(daemon: TestDaemon, pid: number): void {
    const born = birthOf(pid)
    const members = [...(born === undefined ? [] : [{ pid, born }]), ...descendantsOf(pid)]
    this.doomed.push(...members.map((member) => ({ member, of: daemon.name })))
  }

  /** Kills the executor process and restarts the daemon, as a service manager does. Returns false if the daemon is already restarting. */
  async crash(daemon: TestDaemon): Promise<boolean> {
    if (this.#restarting.has(daemon) || !daemon.running) return false
    this.#restarting.add(daemon)
    try {
      this.doom(daemon, daemon.pid)
      await daemon.stop('SIGKILL')
      await this.#bringUp(daemon)
      return true
    } finally {
      this.#restarting.delete(daemon)
    }
  }

  /** Waits until the daemon answers, because its network process may be killed, stopped or cut off meanwhile. */
  async #bringUp(daemon: TestDaemon): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await daemon.start()
      } catch (error) {
        if (daemon.running) break
        this.restartsInVain += 1
        assert.ok(attempt < START_ATTEMPTS, `${daemon.name} does not start: ${String(error)}`)
      }
    }
    await until(`${daemon.name} answers`, async () => !daemon.running || (await daemon.answers()))
  }
}

/**
 * Announces an address of a documentation network instead of loopback addresses. The only path to the daemon is then the proxy, which can
 * be cut.
 */
const announceNowhere = async ({ dir }: TestDaemon): Promise<void> => {
  await mkdir(dir, { recursive: true, mode: 0o700 })
  await writeFile(join(dir, 'config.toml'), 'announce = ["/ip4/192.0.2.1/tcp/9"]\n', { mode: 0o600 })
}

/** Sets the temporary directory of daemons and command lines during the test. */
const useTemporary = async (t: TestContext, directory: string): Promise<void> => {
  const before = process.env['TMPDIR']
  t.after(() => {
    if (before === undefined) delete process.env['TMPDIR']
    else process.env['TMPDIR'] = before
  })
  await mkdir(directory)
  // The network process may run as another user.
  await chmod(directory, 0o777)
  process.env['TMPDIR'] = directory
}
