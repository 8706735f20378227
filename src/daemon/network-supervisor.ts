import { rm } from 'node:fs/promises'

import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import { writeFileAtomic } from '../base/files.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { PortSession } from '../executor/port-session.ts'
import type { Executor } from '../executor/server.ts'
import type { NetworkSettings } from '../executor/port/messages.ts'
import {
  NETWORK_EXIT_MS,
  NETWORK_RESPAWN_MAX_MS,
  NETWORK_RESPAWN_MIN_MS,
  NETWORK_STOP_MS,
  NETWORK_WELL_MS,
} from '../protocol/local-limits.ts'
import { HandedSocket } from './api-socket.ts'
import { startNetworkProcess, type NetworkProcess } from './network-process.ts'
import type { NetworkUser } from './network-user.ts'
import type { DataPaths } from './paths.ts'
import { claimOf, encodeClaim, isAlive, readClaim } from './process-claim.ts'

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
}

/** One process of the network's half, from its spawn to its end. */
interface Life {
  /** The port of its API. Rejects when it ends before it listens. */
  readonly ready: Promise<number>
  readonly ended: Promise<string>
  askToStop(): void
  kill(): void
}

/** What the claim on a process of the network's half says in the place of a lock's token. */
const CLAIM = 'network'

/** The network's half: started, started again when it dies, and ended with us. The executor goes on in between. */
export class NetworkSupervisor implements Startable {
  readonly #components: NetworkSupervisorComponents
  readonly #init: NetworkSupervisorInit
  readonly #stopping = Promise.withResolvers<void>()
  #stopped = false
  #life: Life | null = null
  #port: number | null = null
  #keeping: Promise<void> = Promise.resolve()

  constructor(components: NetworkSupervisorComponents, init: NetworkSupervisorInit) {
    this.#components = components
    this.#init = init
  }

  /** The TCP port of the API; that of the last life while there is none. */
  get apiPort(): number {
    if (this.#port === null) throw new AppError('internal', 'the network half never listened')
    return this.#port
  }

  /** Throws what kept the first from listening. */
  async start(): Promise<void> {
    await this.#endOrphan()
    const life = await this.#begin()
    await this.#listens(life)
    this.#keeping = this.#keep(life)
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#stopping.resolve()
    const life = this.#life
    if (life !== null) {
      life.askToStop()
      const timer = this.#components.clock.setTimeout(() => life.kill(), NETWORK_STOP_MS)
      await life.ended
      timer.cancel()
    }
    await this.#keeping
    const { apiPort, apiSocket, networkPid } = this.#init.paths
    await Promise.all([apiPort, apiSocket, networkPid].map(async (path) => rm(path, { force: true })))
  }

  /** What an executor that was killed may have left for a moment: it must not hold the ports that the next one needs. */
  async #endOrphan(): Promise<void> {
    const claim = await readClaim(this.#init.paths.networkPid)
    if (claim === null || claim.token !== CLAIM || claim.started === '' || !(await isAlive(claim))) return
    process.kill(claim.pid, 'SIGKILL')
    const { clock } = this.#components
    const deadline = clock.monotonic() + NETWORK_EXIT_MS
    while (clock.monotonic() < deadline && (await isAlive(claim))) await this.#wait(ORPHAN_POLL_MS)
  }

  async #begin(): Promise<Life> {
    const { executor } = this.#components
    const { settings, paths, socketMode } = this.#init
    const socket = await HandedSocket.bind(paths.apiSocket, socketMode)
    const child = this.#spawn(socket)
    const { promise: ready, resolve, reject } = Promise.withResolvers<number>()
    const session = executor.attach(child.channel, { settings, onReady: resolve, onFailed: reject })
    void child.ended.then((how) => reject(new AppError('internal', `the network's half ended before it listened: ${how}`)))
    void this.#endWith(session, child)
    const life: Life = { ready, ended: child.ended, askToStop: () => session.askToStop(), kill: () => child.kill() }
    this.#life = life
    if (child.pid > 0) await writeFileAtomic(paths.networkPid, encodeClaim(await claimOf(child.pid, CLAIM)), 0o600)
    if (this.#stopped) life.kill()
    return life
  }

  #spawn(socket: HandedSocket): NetworkProcess {
    const { user, paths } = this.#init
    try {
      const child = startNetworkProcess({ user, apiSocketFd: socket.fd, dataDir: paths.dir })
      socket.handOver()
      return child
    } catch (error) {
      socket.giveUp()
      throw error
    }
  }

  /** Without its channel it can do nothing; one that does not see that is helped. */
  async #endWith(session: PortSession, child: NetworkProcess): Promise<void> {
    await session.closed
    const timer = this.#components.clock.setTimeout(() => child.kill(), NETWORK_EXIT_MS)
    await child.ended
    timer.cancel()
  }

  async #listens(life: Life): Promise<void> {
    this.#port = await life.ready
    await writeFileAtomic(this.#init.paths.apiPort, `127.0.0.1:${this.#port}\n`, 0o600)
  }

  async #keep(first: Life): Promise<void> {
    const { clock, log } = this.#components
    let wait = NETWORK_RESPAWN_MIN_MS
    for (let life: Life | null = first; ;) {
      const began = clock.monotonic()
      const how: string = life === null ? 'it could not be started' : await life.ended
      if (this.#stopped) return
      if (clock.monotonic() - began > NETWORK_WELL_MS) wait = NETWORK_RESPAWN_MIN_MS
      log.error({ how, again_in_ms: wait }, "the network's half ended; the executor goes on, and starts it again")
      await this.#wait(wait)
      if (this.#stopped) return
      wait = Math.min(wait * 2, NETWORK_RESPAWN_MAX_MS)
      life = await this.#again()
    }
  }

  /** Null where not even a process came of it. */
  async #again(): Promise<Life | null> {
    const { log } = this.#components
    const why = (error: unknown): void => log.error({ err: errorText(error) }, "the network's half could not be started again")
    try {
      const life = await this.#begin()
      void this.#listens(life).catch(why)
      return life
    } catch (error) {
      why(error)
      return null
    }
  }

  async #wait(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = this.#components.clock.setTimeout(resolve, ms)
    await Promise.race([promise, this.#stopping.promise])
    timer.cancel()
  }
}

const ORPHAN_POLL_MS = 10
