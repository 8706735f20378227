import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'

import { AppError, errorText } from '../base/errors.ts'
import type { NetworkUser } from './network-user.ts'
import { fromSources, ownProgram, startOwnProcess, type OwnProcess } from './own-process.ts'

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

export const networkProgram = (): string => ownProgram('x0xd-network.mjs', 'network-main.ts')

/** What the runtime lets it do: read its own program. Not: start programs or threads, write, or load native code. */
export const networkRights = (program: string): string[] => ['--permission', `--allow-fs-read=${program}`]

export interface NetworkProcessInit {
  /** Null: as we do. */
  readonly user: NetworkUser | null
  readonly apiSocketFd: number
  /** For who reads the list of processes. */
  readonly dataDir: string
}

/**
 * Starts the network's half: no right to start programs, to write files or to read any but its own
 * program, no environment, a session of its own (a Ctrl-C is for us, who end the children first), and
 * two descriptors. Where `user` is given, also another user, without our groups.
 */
export const startNetworkProcess = (init: NetworkProcessInit): NetworkProcess => {
  const child = launch(init)
  const channel = child.stdio[CHANNEL_FD]
  if (!(channel instanceof Socket)) throw new AppError('internal', "the network's half has no channel")
  return { pid: child.pid, channel, ended: child.ended, kill: () => child.kill('SIGKILL') }
}

const launch = ({ user, apiSocketFd, dataDir }: NetworkProcessInit): OwnProcess => {
  const program = networkProgram()
  try {
    return startOwnProcess(program, {
      flags: networkRights(fromSources ? '*' : program),
      argv: ['--of', dataDir],
      env: process.env['X0X_CRYPTO'] === undefined ? {} : { X0X_CRYPTO: process.env['X0X_CRYPTO'] },
      // What it prints is no answer of ours, so all of it is log.
      stdio: ['ignore', 2, 2, 'pipe', apiSocketFd],
      user,
    })
  } catch (error) {
    // A root without the right to become another, as in a container without capabilities.
    const as = user === null ? '' : ` as ${user.name ?? `uid ${user.uid}`}`
    const remedy =
      user === null ? '' : '; start x0xd as a user of its own, or set network_user = "root" and lose the wall between the halves'
    throw new AppError('bad_config', `the network's half cannot be started${as}: ${errorText(error)}${remedy}`, { cause: error })
  }
}
