import { rm } from 'node:fs/promises'
import { writeFileAtomic } from '../base/atomic-file.ts'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { DataPaths } from '../clients/paths.ts'
import type { NetworkSettings } from '../executor-api/messages.ts'
import type { PortSession } from '../executor/port-session.ts'
import type { Executor } from '../executor/server.ts'
import { NETWORK_STOP_MS } from '../protocol/local-limits.ts'
import { HandedSocket } from './api-socket.ts'
import { type NetworkProcess, NetworkProgram, startNetworkProcess } from './network-process.ts'
import type { NetworkUser } from './network-user.ts'
import { Pulse } from './pulse.ts'
import { type Child, Supervisor } from './supervisor.ts'

/** How long the network half may live on when its channel is closed. */
const NETWORK_EXIT_MS = 1_000
/** How often it may take the time of the watchdog until it listens: a machine that begins everything at once is slow. */
const START_TIMES = 2

export interface NetworkSupervisorComponents {
  readonly executor: Executor
  readonly clock: Clock
  readonly log: Logger
}

export interface NetworkSupervisorInit {
  readonly settings: NetworkSettings
  /** Null: as we do. */
  readonly user: NetworkUser | null
  readonly paths: DataPaths
  readonly socketMode: number
  readonly portFileMode: number
  /** How long it may work on no event until it is ended and started again. */
  readonly watchdogMs: number
}

/** The network's half, with a port of the executor's for each child that it starts. */
export class NetworkSupervisor implements Startable {
  readonly #components: NetworkSupervisorComponents
  readonly #init: NetworkSupervisorInit
  readonly #supervisor: Supervisor
  /** Files that were made here, to be removed at the end. */
  readonly #made = new Set<string>()
  #pulse: Pulse | null = null
  #port: number | null = null
  #program: NetworkProgram | null = null

  constructor(components: NetworkSupervisorComponents, init: NetworkSupervisorInit) {
    this.#components = components
    this.#init = init
    this.#supervisor = new Supervisor(components, {
      name: "the network's half",
      pidFile: init.paths.networkPid,
      stopMs: NETWORK_STOP_MS,
      patienceMs: null,
      begin: async () => this.#begin(),
    })
  }

  /** The TCP port of the API; that of the last child while there is none. */
  get apiPort(): number {
    if (this.#port === null) throw new AppError('internal', 'the network half never listened')
    return this.#port
  }

  /** It listens. */
  get isUp(): boolean {
    return this.#pulse !== null
  }

  /** False: it is hung and does not even die. */
  get isInHand(): boolean {
    return this.#pulse === null || !this.#pulse.isBeyondHelp
  }

  /** Throws what kept the first from listening. */
  async start(): Promise<void> {
    await this.#supervisor.start()
  }

  async stop(): Promise<void> {
    await this.#supervisor.stop()
    this.#program?.close()
    // No others: without a child of ours they are another daemon's.
    await Promise.all([...this.#made].map(async (path) => rm(path, { force: true })))
  }

  async #begin(): Promise<Child> {
    const { executor } = this.#components
    const { settings, paths, socketMode } = this.#init
    const socket = await HandedSocket.bind(paths.apiSocket, socketMode)
    const child = this.#spawn(socket)
    const { promise: listening, resolve, reject } = Promise.withResolvers<number>()
    const session = executor.attach(child.channel, { settings, onReady: resolve, onFailed: reject })
    void child.ended.then((how) => reject(new AppError('internal', `the network's half ended before it listened: ${how}`)))
    void this.#endWithChannel(session, child)
    const ready = this.#serves(listening, session, child)
    const { pid, ended } = child
    return { pid, ended, ready, askToStop: () => session.askToStop(), kill: () => child.kill() }
  }

  #spawn(socket: HandedSocket): NetworkProcess {
    const { user, paths } = this.#init
    try {
      const program = (this.#program ??= new NetworkProgram())
      const child = startNetworkProcess(this.#components, { program, user, apiSocketFd: socket.fd, dataDir: paths.dir })
      socket.handOver()
      this.#made.add(paths.apiSocket)
      return child
    } catch (error) {
      socket.giveUp()
      throw error
    }
  }

  /** A child whose channel is closed should end by itself, and is killed when it does not. */
  async #endWithChannel(session: PortSession, child: NetworkProcess): Promise<void> {
    await session.closed
    const timer = this.#components.clock.setTimeout(() => child.kill(), NETWORK_EXIT_MS)
    await child.ended
    timer.cancel()
  }

  /** From when it listens until it ends. */
  async #watch(session: PortSession, child: NetworkProcess): Promise<void> {
    const { clock, log } = this.#components
    const onHung = (): void => {
      log.error({ network_pid: child.pid }, "the network's half works on no event any more, and is ended")
      child.kill()
    }
    const pulse = new Pulse({ clock }, { patienceMs: this.#init.watchdogMs, ask: async () => session.ping(), onHung })
    pulse.start()
    this.#pulse = pulse
    await child.ended
    pulse.stop()
    if (this.#pulse === pulse) this.#pulse = null
  }

  /** What hangs before it listens answers nothing that could be missed. */
  async #inTime(port: Promise<number>, child: NetworkProcess): Promise<number> {
    const { clock, log } = this.#components
    const timer = clock.setTimeout(() => {
      log.error({ network_pid: child.pid }, "the network's half does not listen in time, and is ended")
      child.kill()
    }, START_TIMES * this.#init.watchdogMs)
    return port.finally(() => timer.cancel())
  }

  async #serves(port: Promise<number>, session: PortSession, child: NetworkProcess): Promise<void> {
    this.#port = await this.#inTime(port, child)
    void this.#watch(session, child)
    this.#made.add(this.#init.paths.apiPort)
    await writeFileAtomic(this.#init.paths.apiPort, `127.0.0.1:${this.#port}\n`, this.#init.portFileMode)
  }
}
