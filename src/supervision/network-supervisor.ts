import { closeSync, existsSync, fstatSync, openSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Clock, Timer } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { writeFileAtomic } from '../base/files.ts'
import { standardErrorLog } from '../base/log-output.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { DataPaths } from '../clients/paths.ts'
import type { NetworkSettings } from '../executor-api/messages.ts'
import type { Executor } from '../executor/executor.ts'
import type { NetworkSession } from '../executor/network-session.ts'
import { NETWORK_STOP_MS } from '../protocol/limits/daemon.ts'
import { type NetworkUser, cannotStart } from './network-user.ts'
import { type OwnProcess, fromSources, ownProgram, programArguments, startOwnProcess } from './own-process.ts'
import { relayLog } from './relayed-log.ts'
import { HandedSocket } from './sockets.ts'
import { type SupervisedChild, Supervisor } from './supervisor.ts'

/** Where its channel is among its descriptors; the API's socket is the next. */
const CHANNEL_FD = 3

export interface NetworkProcess {
  readonly pid: number
  /** The executor's port. */
  readonly channel: Duplex
  /** Resolves when it is over and says how. */
  readonly ended: Promise<string>
  kill(): void
}

const NAME = 'x0xd-network'

/** What the runtime lets it do besides the network: nothing. It opens no file, starts no program and no thread, and loads no native code. */
export const NETWORK_RIGHTS = ['--permission']

export interface NetworkProcessInit {
  readonly program: NetworkProgram
  /** Null: as we do. */
  readonly user: NetworkUser | null
  readonly apiSocketFd: number
  /** For who reads the list of processes. */
  readonly dataDir: string
}

/**
 * Starts the network's half: without the right to start programs or to open files, without environment, in a session
 * of its own (a Ctrl-C is for us, who end the children first), and with two descriptors of ours. Where `user` is given,
 * also another user, without our groups. We hold its program open and hand it over as its standard input, so that neither
 * it nor its user needs a way into the directory where x0x is installed; what it says on standard error, we write down.
 */
export const startNetworkProcess = (components: { clock: Clock }, init: NetworkProcessInit): NetworkProcess => {
  const { pid, stdio, ended, kill } = launch(init)
  const channel = stdio[CHANNEL_FD]
  const log = stdio[2]
  if (!(channel instanceof Socket) || !(log instanceof Socket)) throw new AppError('internal', "the network's half has no channel")
  relayLog(log, components, { name: NAME, pid, write: (line) => standardErrorLog().write(line) })
  return { pid, channel, ended, kill: () => kill('SIGKILL') }
}

/** Its program as it comes by standard input; from sources, which are many files, an import of them. */
const programWords = (): string[] =>
  fromSources ? ['--allow-fs-read=*', ...programArguments(networkProgram())] : ['--input-type=module', '-']

const networkProgram = (): string => ownProgram('x0xd-network')

/**
 * Its program as it is when we start. What an upgrade puts at its path is of another release than we are, and is not
 * started beside us: the file is held, and where it was written over, or cannot be held, none is started.
 */
export class NetworkProgram {
  readonly #path = networkProgram()
  readonly #fd = openSync(this.#path, 'r')
  readonly #was = identityOf(this.#fd)

  /** Opened anew, to be read from its beginning. Throws `conflict`. */
  open(): number {
    const held = `/proc/self/fd/${this.#fd}`
    const fd = openSync(existsSync(held) ? held : this.#path, 'r')
    if (identityOf(fd) === this.#was) return fd
    closeSync(fd)
    throw new AppError('conflict', `${this.#path} has changed since x0xd was started: both halves must be of one release; restart x0xd`)
  }

  close(): void {
    closeSync(this.#fd)
  }
}

/** Of the file and of what is in it. */
const identityOf = (fd: number): string => {
  const { dev, ino, size, mtimeNs } = fstatSync(fd, { bigint: true })
  return [dev, ino, size, mtimeNs].join(' ')
}

const launch = ({ program: held, user, apiSocketFd, dataDir }: NetworkProcessInit): OwnProcess => {
  const program = held.open()
  try {
    return startOwnProcess({
      argv: [...NETWORK_RIGHTS, ...programWords(), '--of', dataDir],
      argv0: NAME,
      env: process.env['X0X_CRYPTO'] === undefined ? {} : { X0X_CRYPTO: process.env['X0X_CRYPTO'] },
      // Not our standard error: where that is a terminal, what is typed there could be read from it.
      stdio: [program, 'ignore', 'pipe', 'pipe', apiSocketFd],
      user,
    })
  } catch (error) {
    throw cannotStart(user, error)
  } finally {
    closeSync(program)
  }
}

/** Questions without an answer, one after another, behind which a process counts as hung. */
const MISSED = 3
/** And so many more behind which it could not even be ended. */
const BEYOND_HELP = 3

export interface PulseInit {
  /** How long it may say nothing. */
  readonly patienceMs: number
  /** Asks it; resolves with its answer, if there is one. */
  readonly ask: () => Promise<void>
  /** Its answers stay away. Called once for each time that they do. */
  readonly onHung: () => void
}

/**
 * Whether another process works on its events: asked again and again, it answers. Questions are counted and not time, so
 * that a stop of ourselves, in which nobody asked, is held against nobody.
 */
export class LivenessProbe implements Startable {
  readonly #clock: Clock
  readonly #init: PulseInit
  #timer: Timer | null = null
  #missed = 0
  #isOpen = false

  constructor(components: { clock: Clock }, init: PulseInit) {
    this.#clock = components.clock
    this.#init = init
  }

  start(): void {
    this.#next()
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  /** It is hung, and what should have followed has not. */
  get isBeyondHelp(): boolean {
    return this.#missed >= MISSED + BEYOND_HELP
  }

  #next(): void {
    this.#timer?.cancel()
    this.#timer = this.#clock.setTimeout(() => this.#beat(), this.#init.patienceMs / MISSED, { unref: true })
  }

  #beat(): void {
    this.#next()
    if (this.#isOpen) {
      this.#missed += 1
      if (this.#missed === MISSED) this.#init.onHung()
      return
    }
    this.#isOpen = true
    void this.#ask()
  }

  async #ask(): Promise<void> {
    await this.#init.ask()
    this.#isOpen = false
    this.#missed = 0
  }
}

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
  #pulse: LivenessProbe | null = null
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
      begin: async () => this.#start(),
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

  async #start(): Promise<SupervisedChild> {
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
      socket.abandon()
      throw error
    }
  }

  /** A child whose channel is closed should end by itself, and is killed when it does not. */
  async #endWithChannel(session: NetworkSession, child: NetworkProcess): Promise<void> {
    await session.closed
    const timer = this.#components.clock.setTimeout(() => child.kill(), NETWORK_EXIT_MS)
    await child.ended
    timer.cancel()
  }

  /** From when it listens until it ends. */
  async #watch(session: NetworkSession, child: NetworkProcess): Promise<void> {
    const { clock, log } = this.#components
    const onHung = (): void => {
      log.error({ network_pid: child.pid }, "the network's half works on no event any more, and is ended")
      child.kill()
    }
    const pulse = new LivenessProbe({ clock }, { patienceMs: this.#init.watchdogMs, ask: async () => session.ping(), onHung })
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

  async #serves(port: Promise<number>, session: NetworkSession, child: NetworkProcess): Promise<void> {
    this.#port = await this.#inTime(port, child)
    void this.#watch(session, child)
    this.#made.add(this.#init.paths.apiPort)
    await writeFileAtomic(this.#init.paths.apiPort, `127.0.0.1:${this.#port}\n`, this.#init.portFileMode)
  }
}
