import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFile, mkdir, writeFile } from 'node:fs/promises'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { duplexPair, type Duplex } from 'node:stream'
import { fileURLToPath } from 'node:url'

import { NETWORK_RIGHTS } from '../../src/supervision/network-supervisor.ts'
import { PORT_VERSION, toExecutor, toNetwork, type ToExecutor, type ToNetwork } from '../../src/executor-api/messages.ts'
import { decodeOperatorKey, proveOperation } from '../../src/identity/operator-proof.ts'
import { encodeFrame, FrameDecoder } from '../../src/protocol/wire/framing.ts'
import { MAX_PORT_MESSAGE } from '../../src/protocol/limits/wire.ts'
import { FakeNetwork } from './fake-network.ts'
import { startCli, until, type CliResult } from './mesh-of-daemons.ts'

const dist = (name: string): string => fileURLToPath(new URL(`../../dist/${name}`, import.meta.url))

/** Call and run numbers from this one on belong to the intruder. The honest network process never counts this far. */
const ASIDE = 2 ** 40

const shifted = <M extends ToExecutor | ToNetwork>(message: M, by: number): M => ({
  ...message,
  ...('id' in message ? { id: message.id + by } : {}),
  ...('run' in message ? { run: message.run + by } : {}),
})

/**
 * Sits between a real network process and its executor process, and so behaves like a compromised network process.
 * It records and withholds the real messages, and sends its own on the same channel and links.
 */
export class Tap {
  /** Payloads, in order. */
  readonly said: Uint8Array[] = []
  readonly heard: Uint8Array[] = []
  /** Replaces each message from the network process by the messages that the executor process receives. */
  rewrite: ((message: ToExecutor) => readonly ToExecutor[]) | null = null
  /** The intruder. */
  readonly aside: FakeNetwork
  readonly #executor: Socket
  readonly #network: Socket
  #withhold: { readonly type: ToExecutor['type']; readonly resolve: (message: ToExecutor) => void } | null = null

  constructor(executor: Socket, network: Socket) {
    this.#executor = executor
    this.#network = network
    const [ours, theirs] = duplexPair()
    this.aside = new FakeNetwork(theirs)
    frames(network, (payload) => this.#fromNetwork(payload))
    frames(executor, (payload) => this.#fromExecutor(payload, ours))
    frames(ours, (payload) => executor.write(encodeFrame(toExecutor.encode(shifted(toExecutor.decode(payload), ASIDE)))))
    for (const [from, to] of [
      [network, executor],
      [executor, network],
    ] as const) {
      from.on('error', () => to.destroy())
      from.on('close', () => {
        to.destroy()
        ours.destroy()
      })
    }
  }

  /** Keeps the next message of this type from the executor process. */
  async withhold<T extends ToExecutor['type']>(type: T): Promise<Extract<ToExecutor, { type: T }>> {
    const { promise, resolve } = Promise.withResolvers<ToExecutor>()
    this.#withhold = { type, resolve }
    return (await promise) as Extract<ToExecutor, { type: T }>
  }

  /** Sends a message to the executor process in the name of the network process. */
  say(message: ToExecutor): void {
    this.#executor.write(encodeFrame(toExecutor.encode(message)))
  }

  /** Sends a message to the network process in the name of the executor process. */
  tell(message: ToNetwork): void {
    this.#network.write(encodeFrame(toNetwork.encode(message)))
  }

  #fromNetwork(payload: Uint8Array): void {
    this.said.push(Buffer.from(payload))
    const message = toExecutor.decode(payload)
    const withhold = this.#withhold
    if (withhold?.type === message.type) {
      this.#withhold = null
      return withhold.resolve(message)
    }
    if (this.rewrite === null) this.#executor.write(encodeFrame(payload))
    else for (const other of this.rewrite(message)) this.say(other)
  }

  #fromExecutor(payload: Uint8Array, aside: Duplex): void {
    this.heard.push(Buffer.from(payload))
    const message = toNetwork.decode(payload)
    const number = 'id' in message ? message.id : 'run' in message ? message.run : 0
    if (number >= ASIDE) aside.write(encodeFrame(toNetwork.encode(shifted(message, -ASIDE))))
    else this.#network.write(encodeFrame(payload))
  }
}

const frames = (stream: Duplex, take: (payload: Uint8Array) => void): void => {
  const decoder = new FrameDecoder(MAX_PORT_MESSAGE)
  stream.on('data', (chunk: Buffer) => {
    for (const payload of decoder.push(chunk)) take(payload)
  })
}

/** A real daemon with a separate executor process. The test chooses the network process that connects to it. */
export class SplitDaemon {
  readonly dir: string
  readonly socket: string
  agentId = ''
  machineId = ''
  /** All bytes that direct connections received. */
  readonly heard: Buffer[] = []
  /** The current tap between the real network process and the executor process. */
  tap!: Tap
  #executor!: ChildProcess
  #network: ChildProcess | null = null
  #server: Server | null = null
  #apart: FakeNetwork | null = null

  constructor(dir: string) {
    this.dir = dir
    this.socket = `${dir}.executor.sock`
  }

  get pid(): number {
    assert.ok(
      this.#executor.pid !== undefined && this.#executor.exitCode === null && this.#executor.signalCode === null,
      'the executor is up',
    )
    return this.#executor.pid
  }

  get aclFile(): string {
    return join(this.dir, 'exec-acl.toml')
  }

  get journalFile(): string {
    return join(this.dir, 'exec.log')
  }

  get outgoingFile(): string {
    return join(this.dir, 'requests.jsonl')
  }

  async startExecutor(settings = ''): Promise<void> {
    await mkdir(this.dir, { recursive: true, mode: 0o700 })
    const config = `mdns = false\napi_port = 0\nlisten = ["/ip4/127.0.0.1/tcp/0"]\n${settings}`
    await writeFile(join(this.dir, 'config.toml'), config, { mode: 0o600 })
    const argv = [dist('x0xd.mjs'), '--data-dir', this.dir, '--executor-socket', this.socket, '--exec-acl', this.aclFile]
    this.#executor = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'ignore'] })
    const [line] = (await Promise.race([once(this.#executor.stdout!, 'data'), once(this.#executor, 'exit')])) as [Buffer]
    const [, agentId = '', machineId = ''] = /agent (\w+), machine (\w+),/.exec(String(line)) ?? []
    assert.notEqual(agentId, '', 'the executor did not start')
    Object.assign(this, { agentId, machineId })
  }

  /** Sends SIGTERM to the executor process and returns its exit status. */
  async stopExecutor(): Promise<number | null> {
    if (this.#executor.exitCode === null && this.#executor.signalCode === null) {
      const gone = once(this.#executor, 'exit')
      this.#executor.kill('SIGTERM')
      await gone
    }
    return this.#executor.exitCode
  }

  /** Starts the real network process behind a tap. Resolves when its API answers. */
  async startNetwork(): Promise<void> {
    this.#apart?.client.stop()
    const path = `${this.dir}.tap.sock`
    const server = createServer((network) => {
      this.tap = new Tap(connect(this.socket), network)
    })
    server.listen(path)
    await once(server, 'listening')
    this.#server = server
    const argv = [...NETWORK_RIGHTS, '--allow-fs-read=*', '--allow-fs-write=*', dist('x0xd-network.mjs'), '--executor', path]
    this.#network = spawn(process.execPath, [...argv, '--api-socket', join(this.dir, 'api.sock')], { stdio: 'ignore' })
    await until('the API answers', async () => (await this.cli(['id'])).status === 0)
    await this.tap.aside.client.start()
  }

  async killNetwork(): Promise<void> {
    const network = this.#network
    this.#network = null
    if (network === null || network.exitCode !== null || network.signalCode !== null) return
    const gone = once(network, 'exit')
    network.kill('SIGKILL')
    await gone
    this.#server?.close()
  }

  async cli(argv: readonly string[]): Promise<CliResult> {
    return startCli(['--data-dir', this.dir, ...argv]).finished
  }

  async ok(...argv: readonly string[]): Promise<string> {
    const result = await this.cli(argv)
    assert.equal(result.status, 0, `x0x ${argv.join(' ')}: ${result.stderr}`)
    return result.stdout.toString()
  }

  /** Opens a connection to the executor process without an honest network process. Closes the previous one. */
  async connect(): Promise<FakeNetwork> {
    return until('the executor takes another network half', async () => {
      const socket = await this.#open()
      const network = new FakeNetwork(socket.on('data', (chunk: Buffer) => this.heard.push(chunk)))
      try {
        await network.client.start()
      } catch {
        return null
      }
      this.#apart = network
      return network
    })
  }

  /** Opens a connection, completes the greeting and returns the paused socket. */
  async raw(): Promise<Socket> {
    return until('the executor takes another network half', async () => {
      const socket = await this.#open()
      const greeted = new Promise<boolean>((resolve) => {
        frames(socket, (payload) => toNetwork.decode(payload).type === 'snapshot' && resolve(true))
        socket.once('close', () => resolve(false))
      })
      socket.write(encodeFrame(toExecutor.encode({ type: 'hello', id: 0, version: PORT_VERSION })))
      if (!(await greeted)) return null
      socket.removeAllListeners('data')
      return socket.pause()
    })
  }

  /** The executor process refuses a connection that arrives before it has seen the previous one end. */
  async #open(): Promise<Socket> {
    this.#apart?.client.stop()
    this.#apart = null
    const socket = connect(this.socket)
    socket.on('error', () => undefined)
    await once(socket, 'connect')
    return socket
  }

  /** A proof by this host's operator. */
  async prove(operation: string, body: Uint8Array): Promise<string> {
    const key = decodeOperatorKey(await readFile(join(this.dir, 'operator.key'), 'latin1'))
    assert.ok(key)
    return proveOperation(key, operation, body, Date.now())
  }

  async stop(): Promise<void> {
    this.#apart?.client.stop()
    await this.killNetwork()
    await this.stopExecutor()
  }
}
