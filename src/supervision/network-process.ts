import { closeSync, existsSync, fstatSync, openSync } from 'node:fs'
import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { standardErrorLog } from '../base/log-output.ts'
import { type NetworkUser, cannotStart } from './network-user.ts'
import { type OwnProcess, fromSources, ownProgram, programArguments, startOwnProcess } from './own-process.ts'
import { relayLog } from './relayed-log.ts'

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
