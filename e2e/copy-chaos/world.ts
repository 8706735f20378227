import { createHash } from 'node:crypto'
import { mkdir, readdir, rm, stat, statfs, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { CuttableProxy } from '../../test/support/cuttable-proxy.ts'
import { until, type RunningCli, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { acquaintFiles, proxiedPair, type ProxiedPair } from '../../test/support/proxied-pair.ts'
import { smallDisk } from '../../test/support/small-disk.ts'
import type { PlannedCopy, PlannedRound } from './plan.ts'

const MIB = 1024 * 1024
const DISK_BYTES = 128 * MIB
/** Room that is left on a full disk. */
const ROOM_BYTES = 256 * 1024
/** Number of start attempts, as a service manager would make them. */
const START_ATTEMPTS = 5

/** A proxy that counts the connections that it refuses. */
class CountingProxy extends CuttableProxy {
  refused = 0

  protected override admits(): boolean {
    const admits = super.admits()
    if (!admits) this.refused += 1
    return admits
  }
}

/** One copy with its files. Source and destination each have their own directory. */
export interface Copy extends PlannedCopy {
  readonly source: string
  readonly target: string
  /** Directory of the destination. */
  readonly directory: string
  /** Arguments of `x0x cp`. */
  readonly words: readonly [string, string]
  readonly sha256: string
  readonly oldSha256: string | null
}

export const digestOf = (data: Uint8Array): string => createHash('sha256').update(data).digest('hex')

/** Two daemons, the files of both, and a small disk on each side. */
export class CopyWorld {
  readonly alice: TestDaemon
  readonly bob: TestDaemon
  readonly proxy: CountingProxy
  /** Whether the small disk is a real file system. Otherwise only the ACL limits its size. */
  readonly hasDisk: boolean
  readonly #root: string
  readonly #disk: string
  readonly #seed: number

  private constructor(pair: ProxiedPair<CountingProxy>, init: { disk: string; hasDisk: boolean; seed: number }) {
    this.alice = pair.alice
    this.bob = pair.bob
    this.proxy = pair.proxy
    this.#root = pair.mesh.root
    this.#disk = init.disk
    this.hasDisk = init.hasDisk
    this.#seed = init.seed
  }

  static async create(t: TestContext, seed: number): Promise<CopyWorld> {
    const pair = await proxiedPair(t, (port) => new CountingProxy(port))
    const mounted = await smallDisk(t, DISK_BYTES / 1024)
    const disk = mounted ?? join(pair.mesh.root, 'disk')
    for (const root of [pair.mesh.root, disk])
      for (const side of ['here', 'there']) await mkdir(join(root, side), { recursive: true, mode: 0o755 })
    const table = (root: string, keys = ''): string =>
      `[[exec.allow.files]]\nroot = "${join(root, 'there')}"\nread = true\nwrite = true\n${keys}`
    await acquaintFiles(pair, table(pair.mesh.root) + table(disk, mounted === null ? `max_total_bytes = ${DISK_BYTES}\n` : ''))
    return new CopyWorld(pair, { disk, hasDisk: mounted !== null, seed })
  }

  /** Writes the source file and the old file of the destination. */
  async prepare(planned: PlannedCopy, onDisk: boolean): Promise<Copy> {
    const { name, direction, size, oldSize } = planned
    const [from, to] = direction === 'up' ? ['here', 'there'] : ['there', 'here']
    const [origin, directory] = [join(this.#root, from, name), join(onDisk ? this.#disk : this.#root, to, name)]
    await mkdir(origin)
    await mkdir(directory)
    const [source, target] = [join(origin, 'file'), join(directory, 'file')]
    const data = this.#bytes(name, size)
    await writeFile(source, data)
    const old = oldSize === null ? null : this.#bytes(`${name}, old`, oldSize)
    if (old !== null) await writeFile(target, old)
    return {
      ...planned,
      source,
      target,
      directory,
      words: direction === 'up' ? [source, `bob:${target}`] : [`bob:${source}`, target],
      sha256: digestOf(data),
      oldSha256: old === null ? null : digestOf(old),
    }
  }

  start({ words }: Copy): RunningCli {
    return this.alice.startCli(['cp', '--json', ...words])
  }

  async fillDisk(): Promise<void> {
    const { bavail, bsize } = await statfs(this.#disk)
    const bytes = (this.hasDisk ? bavail * bsize : DISK_BYTES) - ROOM_BYTES
    await writeFile(this.#ballast, Buffer.alloc(bytes))
  }

  async emptyDisk(): Promise<void> {
    await rm(this.#ballast)
  }

  /** Resolves when the first copy has reached the planned point, or all copies are over. */
  async reached(
    { at }: PlannedRound,
    { direction, directory, size }: Copy,
    { log, isOver }: { log: number; isOver: () => boolean },
  ): Promise<void> {
    await until('the copy is so far', async () => {
      if (isOver()) return true
      if (at === 0 || size === 0) return (await this.requestsBytes()) > log
      const parts = (await readdir(directory)).filter((name) => (direction === 'up' ? /\.part$/ : /\.x0x-part$/).test(name))
      const sizes = await Promise.all(parts.map(async (name) => stat(join(directory, name)).catch(() => null)))
      return sizes.some((info) => info !== null && info.size >= at * size)
    })
  }

  /** Size of the request log, which grows with each request. */
  async requestsBytes(): Promise<number> {
    return (await stat(this.requestsFile)).size
  }

  get requestsFile(): string {
    return join(this.alice.dir, 'requests.jsonl')
  }

  async #restart(daemon: TestDaemon, signal: NodeJS.Signals): Promise<void> {
    await daemon.stop(signal)
    for (let attempt = 1; ; attempt++) {
      try {
        return await daemon.start()
      } catch (error) {
        if (attempt === START_ATTEMPTS) throw error
      }
    }
  }

  async #killNetwork(daemon: TestDaemon): Promise<void> {
    const pid = await daemon.networkPid()
    process.kill(pid, 'SIGKILL')
    await until('the daemon has another network process', async () => (await daemon.networkPid().catch(() => pid)) !== pid)
  }

  /** Causes the fault of a round. Resolves when both daemons run again. */
  async strike({ fault, refused, at }: PlannedRound, isOver: () => boolean): Promise<void> {
    const { alice, bob, proxy } = this
    switch (fault) {
      case 'cut':
        return proxy.cut()
      case 'blackout': {
        const before = proxy.refused
        proxy.refuse()
        try {
          await until('connections were refused', () => isOver() || proxy.refused >= before + refused)
        } finally {
          proxy.allow()
        }
        return
      }
      case 'kill requester':
        return this.#restart(alice, 'SIGKILL')
      case 'kill target':
        return this.#restart(bob, 'SIGKILL')
      case 'restart requester':
        return this.#restart(alice, 'SIGTERM')
      case 'restart target':
        return this.#restart(bob, 'SIGTERM')
      case 'kill network process':
        return this.#killNetwork(at < 0.5 ? alice : bob)
      case 'none':
      case 'kill client':
      case 'full disk':
    }
  }

  /** Waits until both daemons answer and no command runs. */
  async settle(): Promise<void> {
    await until('both daemons answer', async () => (await this.alice.answers()) && (await this.bob.answers()))
    await until('nothing runs on bob', async () => (await this.bob.diagnostics()).active_sessions === 0)
  }

  get #ballast(): string {
    return join(this.#disk, 'there', 'ballast')
  }

  #bytes(name: string, size: number): Buffer {
    return size === 0 ? Buffer.alloc(0) : createHash('shake256', { outputLength: size }).update(`${this.#seed} ${name}`).digest()
  }
}
