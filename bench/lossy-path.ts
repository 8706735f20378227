import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { createSocket, type Socket as UdpSocket } from 'node:dgram'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import { TcpProxy } from '../test/support/tcp-proxy.ts'
import { splice } from './far-side.ts'

const run = promisify(execFile)
const FAR_SIDE = fileURLToPath(new URL('far-side.ts', import.meta.url))
/** Both networks are reserved for benchmarks (RFC 2544). UNDERLAY carries the packets of PATH. */
const UNDERLAY = { near: '198.18.0.1', far: '198.18.0.2' }
const PATH = { near: '198.19.0.1', far: '198.19.0.2' }
const FAR_PORT = 7_000
/** Leaves room for the headers of the outer packet. */
const MTU = 1_400

export interface LossyPathInit {
  /** Called for each packet. */
  readonly roundTripMs: () => number
  /** Share of lost packets in each direction, 0 to 1. */
  readonly loss: number
}

/** The missing requirements of such a path on this machine, or null. */
export const lossyPathNeeds = (): string | null => {
  if (process.geteuid?.() !== 0) return 'root'
  if (!existsSync('/dev/net/tun')) return '/dev/net/tun'
  return ['/usr/bin/socat', '/usr/sbin/ip'].find((file) => !existsSync(file) && !existsSync(file.replace('/usr', ''))) ?? null
}

/** A generator with the same losses in every run (mulberry32). */
const generator = (seed: number) => (): number => {
  seed = (seed + 0x6d2b79f5) | 0
  let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
}

/** Carries one direction. Packets arrive in order after 0.5 round trips, or are lost. */
const carry = (from: UdpSocket, to: UdpSocket, port: number, host: string, { roundTripMs, loss }: LossyPathInit, seed: number): void => {
  const random = generator(seed)
  const queue: { readonly at: number; readonly packet: Buffer }[] = []
  let timer: NodeJS.Timeout | undefined
  const release = (): void => {
    timer = undefined
    const now = performance.now()
    while (queue[0] !== undefined && queue[0].at <= now) to.send(queue.shift()!.packet, port, host, () => undefined)
    if (queue[0] !== undefined) timer = setTimeout(release, Math.max(0, queue[0].at - now))
  }
  to.on('close', () => {
    queue.length = 0
    clearTimeout(timer)
  })
  from.on('message', (packet) => {
    if (random() < loss) return
    queue.push({ at: performance.now() + roundTripMs() / 2, packet })
    timer ??= setTimeout(release, roundTripMs() / 2)
  })
}

const bound = async (port: number, host: string): Promise<UdpSocket> => {
  const socket = createSocket('udp4').bind(port, host)
  await once(socket, 'listening')
  return socket
}

/** Connects to the far side of the path, which forwards to the requested port. */
class LossyProxy extends TcpProxy {
  readonly #farPort: number

  constructor(farPort: number) {
    super(() => farPort)
    this.#farPort = farPort
  }

  protected override dial(): Socket {
    return connect({ host: PATH.far, port: this.#farPort, noDelay: true })
  }

  protected override join(from: Socket, to: Socket): void {
    splice(from, to)
  }
}

/**
 * A path through a network namespace and back, with delay and packet loss. Handshakes, congestion windows
 * and retransmissions are those of the kernel's TCP. Used on machines without the network emulator (sch_netem).
 */
export class LossyPath {
  readonly #name = `x0x-bench-${process.pid}`
  readonly #processes: ChildProcess[] = []
  readonly #sockets: UdpSocket[] = []
  readonly #servers: (Server | TcpProxy)[] = []
  #dir = ''

  static async open(init: LossyPathInit): Promise<LossyPath> {
    const path = new LossyPath()
    try {
      await path.#open(init)
    } catch (error) {
      await path.close()
      throw error
    }
    return path
  }

  async #open(init: LossyPathInit): Promise<void> {
    this.#dir = await mkdtemp(join(tmpdir(), 'x0x-bench-path-'))
    const inside = ['netns', 'exec', this.#name]
    const veth = [this.#link, `xb${process.pid}f`] as const
    await run('ip', ['netns', 'add', this.#name])
    await run('ip', ['link', 'add', veth[0], 'type', 'veth', 'peer', 'name', veth[1], 'netns', this.#name])
    await run('ip', ['addr', 'add', `${UNDERLAY.near}/30`, 'dev', veth[0]])
    await run('ip', ['link', 'set', veth[0], 'up'])
    await run('ip', [...inside, 'ip', 'addr', 'add', `${UNDERLAY.far}/30`, 'dev', veth[1]])
    await run('ip', [...inside, 'ip', 'link', 'set', veth[1], 'up'])
    const [near, far, free] = [await bound(0, '127.0.0.1'), await bound(0, UNDERLAY.near), await bound(0, '127.0.0.1')]
    this.#sockets.push(near, far)
    const nearPort = free.address().port
    free.close()
    carry(near, far, FAR_PORT, UNDERLAY.far, init, 1)
    carry(far, near, nearPort, '127.0.0.1', init, 2)
    const tun = (address: string): string => `TUN:${address}/30,up,iff-no-pi,tun-name=${this.#tun}`
    this.#start('socat', [tun(PATH.near), `UDP:127.0.0.1:${near.address().port},bind=127.0.0.1:${nearPort}`])
    const farUdp = `UDP:${UNDERLAY.near}:${far.address().port},bind=${UNDERLAY.far}:${FAR_PORT}`
    this.#start('ip', [...inside, 'socat', tun(PATH.far), farUdp])
    await this.#shorten([])
    await this.#shorten(inside)
  }

  get #link(): string {
    return `xb${process.pid}n`
  }

  get #tun(): string {
    return `xbt${process.pid}`
  }

  /** Creates a local port that leads through the path to the port from `target`. */
  async proxyTo(target: () => number): Promise<TcpProxy> {
    const socketPath = join(this.#dir, `${this.#servers.length}.sock`)
    const server = createServer((near) => splice(near, connect({ host: '127.0.0.1', port: target(), noDelay: true }), 'both')).listen(
      socketPath,
    )
    await once(server, 'listening')
    const child = this.#start('ip', ['netns', 'exec', this.#name, process.execPath, FAR_SIDE, PATH.far, socketPath])
    const [port] = (await once(child.stdout!, 'data')) as [Buffer]
    const proxy = await new LossyProxy(Number(port)).listen()
    this.#servers.push(server, proxy)
    return proxy
  }

  async close(): Promise<void> {
    for (const child of this.#processes) {
      child.kill('SIGKILL')
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    }
    for (const socket of this.#sockets) socket.close()
    for (const server of this.#servers) void server.close()
    // Otherwise it remains until the last connection in the namespace ends, which can take a minute.
    await run('ip', ['link', 'del', this.#link]).catch(() => undefined)
    await run('ip', ['netns', 'del', this.#name]).catch(() => undefined)
    await rm(this.#dir, { recursive: true, force: true })
  }

  #start(file: string, argv: readonly string[]): ChildProcess {
    const child = spawn(file, argv, { stdio: ['ignore', 'pipe', 'ignore'] })
    this.#processes.push(child)
    return child
  }

  /** Waits for the end of the path inside the namespace and reduces its packet size. */
  async #shorten(inside: readonly string[]): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        await run('ip', [...inside, ...(inside.length > 0 ? ['ip'] : []), 'link', 'set', this.#tun, 'mtu', String(MTU)])
        return
      } catch (error) {
        if (tries === 50) throw error
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
    }
  }
}
