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

/** Descriptor of the channel in the child. That of the API's socket is the next. Those of the program and its compiled code may follow. */
const CHANNEL_FD = 3

export interface NetworkProcess {
  readonly pid: number
  readonly channel: Duplex
  /** Resolves at the end with its reason. */
  readonly ended: Promise<string>
  kill(): void
}

const NAME = 'x0xd-network'

/** The runtime's restrictions of the network process. It can open no file, start no program or thread, and load no native code. */
export const NETWORK_RIGHTS = ['--permission']

export interface NetworkProcessInit {
  readonly program: NetworkProgram
  /** Null for this process's user. */
  readonly user: NetworkUser | null
  readonly apiSocketFd: number
  /** Shown in the list of processes. */
  readonly dataDir: string
}

/**
 * Starts the network process without the right to start programs or open files, without environment, and with inherited descriptors only. It
 * has a separate session, because on Ctrl-C this process ends its children first. With `user`, it runs as that user without supplementary
 * groups. Its files are passed open, the first on standard input.
 */
export const startNetworkProcess = (components: { clock: Clock }, init: NetworkProcessInit): NetworkProcess => {
  const { pid, stdio, ended, kill } = launch(init)
  const channel = stdio[CHANNEL_FD]
  const log = stdio[2]
  if (!(channel instanceof Socket) || !(log instanceof Socket)) throw new AppError('internal', 'the network process has no channel')
  relayLog(log, components, { name: NAME, pid, write: (line) => standardErrorLog().write(line) })
  return { pid, channel, ended, kill: () => kill('SIGKILL') }
}

/** Arguments to run the program from standard input, or to import it from its many source files. */
const programWords = (): string[] =>
  fromSources ? ['--allow-fs-read=*', ...programArguments(networkProgram())] : ['--input-type=module', '-']

const networkProgram = (): string => ownProgram('x0xd-network')

/**
 * Files of the network process, its standard input first: the program, or its loader, the program and its compiled code. Only the program
 * must exist.
 */
const networkFiles = (): string[] => {
  const program = networkProgram()
  const [loader, compiled] = ['-start.mjs', '.cache'].map((ending) => program.replace(/\.mjs$/, ending)) as [string, string]
  return !fromSources && existsSync(loader) && existsSync(compiled) ? [loader, program, compiled] : [program]
}

/** A file at the time of this process's start. An upgrade may replace it by that of another release. */
class HeldFile {
  readonly #path: string
  readonly #fd: number
  readonly #was: string

  constructor(path: string) {
    this.#path = path
    this.#fd = openSync(path, 'r')
    this.#was = identityOf(this.#fd)
  }

  /** A new descriptor at the file's beginning. Throws `conflict` if the file was overwritten or cannot be held open. */
  open(): number {
    const held = `/proc/self/fd/${this.#fd}`
    const fd = openSync(existsSync(held) ? held : this.#path, 'r')
    if (identityOf(fd) === this.#was) return fd
    closeSync(fd)
    throw new AppError('conflict', `${this.#path} has changed since x0xd was started: both processes need the same release; restart x0xd`)
  }

  close(): void {
    closeSync(this.#fd)
  }
}

/** The network program at the time of this process's start. No other release is started. */
export class NetworkProgram {
  readonly #files = networkFiles().map((path) => new HeldFile(path))

  /** Calls `work` with new descriptors of the files, which are closed afterwards. */
  withFiles<T>(work: (stdin: number, others: readonly number[]) => T): T {
    const fds: number[] = []
    try {
      for (const file of this.#files) fds.push(file.open())
      const [stdin, ...others] = fds as [number, ...number[]]
      return work(stdin, others)
    } finally {
      for (const fd of fds) closeSync(fd)
    }
  }

  close(): void {
    for (const file of this.#files) file.close()
  }
}

/** Identity of the file and its content. */
const identityOf = (fd: number): string => {
  const { dev, ino, size, mtimeNs } = fstatSync(fd, { bigint: true })
  return [dev, ino, size, mtimeNs].join(' ')
}

const launch = ({ program, user, apiSocketFd, dataDir }: NetworkProcessInit): OwnProcess =>
  program.withFiles((stdin, others) => {
    try {
      return startOwnProcess({
        argv: [...NETWORK_RIGHTS, ...programWords(), '--of', dataDir],
        argv0: NAME,
        env: process.env['X0X_CRYPTO'] === undefined ? {} : { X0X_CRYPTO: process.env['X0X_CRYPTO'] },
        // Standard error is a pipe, because a process could read typed text from a terminal.
        stdio: [stdin, 'ignore', 'pipe', 'pipe', apiSocketFd, ...others],
        user,
      })
    } catch (error) {
      throw cannotStart(user, error)
    }
  })

/** Intervals without an answer after which a process counts as hung. */
const MISSED = 3
/** Further intervals after which it could not even be killed. */
const BEYOND_HELP = 3

export interface PulseInit {
  readonly patienceMs: number
  /** Sends a probe. Resolves with its answer. */
  readonly ask: () => Promise<void>
  /** Called once each time that answers are missing. */
  readonly onHung: () => void
}

/** Probes whether another process handles its events. Counts probes, not time, so that a pause of this process has no effect. */
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

  /** True if the process is hung and was not ended. */
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

/** Time for the network process to exit after its channel is closed. */
const NETWORK_EXIT_MS = 1_000
/** Time until it listens, in multiples of the watchdog's time. A machine that starts many services at once is slow. */
const START_TIMES = 2

export interface NetworkSupervisorInit {
  /** Null for this process's user. */
  readonly user: NetworkUser | null
  readonly paths: DataPaths
  readonly socketMode: number
  readonly portFileMode: number
  /** Time that it may be busy with one event before it is killed and restarted. */
  readonly watchdogMs: number
}

/** The executor that children serve, and their settings. */
interface Served {
  readonly executor: Executor
  readonly settings: NetworkSettings
}

/** A child with its session. `port` rejects if the child could not listen. */
interface AttachedChild {
  readonly session: NetworkSession
  readonly port: Promise<number>
}

/** Supervises the network process, with a new executor session for each child. */
export class NetworkSupervisor {
  readonly #components: { readonly clock: Clock; readonly log: Logger }
  readonly #init: NetworkSupervisorInit
  readonly #supervisor: Supervisor
  readonly #served = Promise.withResolvers<Served>()
  /** Files created by this process, which are removed at the end. */
  readonly #made = new Set<string>()
  #pulse: LivenessProbe | null = null
  #port: number | null = null
  #program: NetworkProgram | null = null
  #started: Promise<void> | null = null

  constructor(components: { readonly clock: Clock; readonly log: Logger }, init: NetworkSupervisorInit) {
    this.#components = components
    this.#init = init
    this.#supervisor = new Supervisor(components, {
      name: 'the network process',
      pidFile: init.paths.networkPid,
      stopMs: NETWORK_STOP_MS,
      patienceMs: null,
      begin: async () => this.#start(),
    })
  }

  /** TCP port of the API. Without a child, that of the last one. */
  get apiPort(): number {
    if (this.#port === null) throw new AppError('internal', 'the network process never listened')
    return this.#port
  }

  get isUp(): boolean {
    return this.#pulse !== null
  }

  /** False if it is hung and cannot be killed. */
  get isInHand(): boolean {
    return this.#pulse === null || !this.#pulse.isBeyondHelp
  }

  /**
   * Starts the first child while the executor still starts, because a child needs longer to load its program. Until `serve`, the child
   * knows no settings and no client reaches it. `serve` throws the errors of this start.
   */
  startAhead(): void {
    this.#started ??= this.#supervisor.start()
    this.#started.catch(() => undefined)
  }

  /** Serves the children. Throws the error that kept the first child from listening. */
  async serve(executor: Executor, settings: NetworkSettings): Promise<void> {
    this.startAhead()
    this.#served.resolve({ executor, settings })
    await this.#started
  }

  async stop(): Promise<void> {
    await this.#supervisor.stop()
    this.#program?.close()
    this.#program = null
    // Other files belong to another daemon.
    await Promise.all([...this.#made].map(async (path) => rm(path, { force: true })))
  }

  async #start(): Promise<SupervisedChild> {
    const { paths, socketMode } = this.#init
    const socket = await HandedSocket.bind(paths.apiSocket, socketMode)
    const child = this.#spawn(socket)
    const { pid, ended } = child
    let session: NetworkSession | null = null
    const serve = async (): Promise<void> => {
      const attached = await this.#attach(child, socket)
      session = attached.session
      await this.#serves(attached, child)
    }
    return {
      pid,
      ended,
      ready: serve(),
      askToStop: () => (session === null ? child.kill() : session.askToStop()),
      kill: () => child.kill(),
    }
  }

  #spawn(socket: HandedSocket): NetworkProcess {
    const { user, paths } = this.#init
    try {
      const program = (this.#program ??= new NetworkProgram())
      return startNetworkProcess(this.#components, { program, user, apiSocketFd: socket.fd, dataDir: paths.dir })
    } catch (error) {
      socket.abandon()
      throw error
    }
  }

  /** Waits for the executor. Then the socket gets its path and the child its session. Throws if the child has ended before. */
  async #attach(child: NetworkProcess, socket: HandedSocket): Promise<AttachedChild> {
    const { promise: listening, resolve, reject } = Promise.withResolvers<number>()
    void child.ended.then((how) => reject(new AppError('internal', `the network process ended before it listened: ${how}`)))
    try {
      await Promise.race([this.#served.promise, listening])
      socket.handOver()
    } catch (error) {
      socket.abandon()
      throw error
    }
    this.#made.add(this.#init.paths.apiSocket)
    const { executor, settings } = await this.#served.promise
    const session = executor.attach(child.channel, { settings, onReady: resolve, onFailed: reject })
    void this.#endWithChannel(session, child)
    return { session, port: listening }
  }

  /** A child whose channel is closed should exit. If it does not, it is killed. */
  async #endWithChannel(session: NetworkSession, child: NetworkProcess): Promise<void> {
    await session.closed
    const timer = this.#components.clock.setTimeout(() => child.kill(), NETWORK_EXIT_MS)
    await child.ended
    timer.cancel()
  }

  async #watch(session: NetworkSession, child: NetworkProcess): Promise<void> {
    const { clock, log } = this.#components
    const onHung = (): void => {
      log.error({ network_pid: child.pid }, 'the network process does not respond, and is stopped')
      child.kill()
    }
    const pulse = new LivenessProbe({ clock }, { patienceMs: this.#init.watchdogMs, ask: async () => session.ping(), onHung })
    pulse.start()
    this.#pulse = pulse
    await child.ended
    pulse.stop()
    if (this.#pulse === pulse) this.#pulse = null
  }

  /** A process that hangs before it listens answers no probe, so it has a deadline. */
  async #inTime(port: Promise<number>, child: NetworkProcess): Promise<number> {
    const { clock, log } = this.#components
    const timer = clock.setTimeout(() => {
      log.error({ network_pid: child.pid }, 'the network process does not listen in time, and is stopped')
      child.kill()
    }, START_TIMES * this.#init.watchdogMs)
    return port.finally(() => timer.cancel())
  }

  async #serves({ session, port }: AttachedChild, child: NetworkProcess): Promise<void> {
    this.#port = await this.#inTime(port, child)
    void this.#watch(session, child)
    this.#made.add(this.#init.paths.apiPort)
    await writeFileAtomic(this.#init.paths.apiPort, `127.0.0.1:${this.#port}\n`, this.#init.portFileMode)
  }
}
