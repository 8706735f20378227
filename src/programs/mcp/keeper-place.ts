import { createHash } from 'node:crypto'

import { open } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { join } from 'node:path'

import { absolutePath, homeDirectory } from '../../base/home.ts'
import { systemClock } from '../../base/clock.ts'
import { AppError, attempt } from '../../base/errors.ts'
import { ensurePrivateDir } from '../../base/file-rights.ts'
import { socketDirProblems } from '../../base/private-socket.ts'
import { Waiters } from '../../base/waiters.ts'
import { KeeperLink, type KeeperLinkInit } from '../../local-api/keeper-link.ts'
import { dialOwn } from '../../base/own-socket.ts'
import { realPath } from '../../base/real-path.ts'
import { KEEPER_START_MS, MAX_KEEPER_LOG } from '../../protocol/tool-limits.ts'
import { ownProgram, programArguments, startOwnProcess } from '../../supervision/own-process.ts'

/** Which keeper is meant. */
export interface KeeperChoice {
  readonly config: string
  readonly whoami: string
}

/** Between two looks whether a keeper listens. */
const LOOK_MS = 50
/** Characters of a hash that name the files of one keeper: the path of a socket is short. */
const NAME_DIGITS = 16

/** Where keepers of this user listen; the same whatever environment a runtime of agents gives but HOME. */
export const keepersDirectory = (): string => join(homeDirectory(), '.local', 'state', 'x0x-mcp')

/** The files of the keeper of a configuration and a name. */
export const keeperPlace = ({ config, whoami }: KeeperChoice) => {
  const path = absolutePath('--config', config)
  const real = attempt(() => realPath(path)) ?? path
  const name = createHash('sha256')
    .update(JSON.stringify([real, whoami]))
    .digest('hex')
    .slice(0, NAME_DIGITS)
  const file = (kind: string): string => join(keepersDirectory(), `${name}.${kind}`)
  return { socket: file('sock'), lock: file('lock'), pid: file('pid'), log: file('log') } as const
}

const foreign = (problem: string): AppError => new AppError('conflict', `${problem}; it is no keeper of ours: have it removed`)

/** Null: none runs. Throws where others could have put it there. */
const dial = async (socket: string): Promise<Socket | null> => {
  const problems = await socketDirProblems(socket)
  if (problems.length > 0) throw new AppError('loose_permissions', `${socket}: ${problems.join('; ')}`, { data: { file: socket } })
  return dialOwn(socket, foreign)
}

/** For what it says, and what the runtime says of its end. Begun anew when it is large. */
const openLog = async (path: string) => {
  const file = await open(path, 'a', 0o600)
  if ((await file.stat()).size > MAX_KEEPER_LOG) await file.truncate()
  return file
}

/** Starts a keeper that outlives us: in a session of its own, with nothing of ours but the environment. */
const start = async ({ config, whoami }: KeeperChoice, log: string) => {
  await ensurePrivateDir(keepersDirectory())
  const file = await openLog(log)
  try {
    return startOwnProcess({
      argv: [...programArguments(ownProgram('x0x-mcp')), '--keep', '--whoami', whoami, '--config', absolutePath('--config', config)],
      env: Object.fromEntries(Object.entries(process.env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]))),
      stdio: ['ignore', 'ignore', file.fd],
      user: null,
    })
  } finally {
    await file.close()
  }
}

/** One that finds another there ends well, and that one is waited for: it may be about to listen, or about to end. */
const startAndDial = async (choice: KeeperChoice, signal: AbortSignal): Promise<Socket> => {
  const { socket: path, log } = keeperPlace(choice)
  const late = systemClock.monotonic() + KEEPER_START_MS
  const looks = new Waiters()
  let how: string | null = 'exit 0'
  while (systemClock.monotonic() < late) {
    signal.throwIfAborted()
    if (how === 'exit 0') {
      how = null
      void (await start(choice, log)).ended.then((text) => (how = text))
    }
    await looks.wait({ clock: systemClock, timeoutMs: LOOK_MS, signal })
    const socket = await dial(path)
    if (socket !== null) return socket
    if (how !== null && how !== 'exit 0')
      throw new AppError('internal', `the keeper ended (${String(how)}) before it listened: ${log} says why`)
  }
  throw new AppError('timeout', `the keeper does not listen: ${log} may say why`)
}

/** The way to the keeper of this choice. */
export const keeperLink = (choice: KeeperChoice, told?: KeeperLinkInit['told']): KeeperLink =>
  new KeeperLink({
    told,
    dial: async (starts, signal) => {
      const socket = await dial(keeperPlace(choice).socket)
      return socket ?? (starts ? startAndDial(choice, signal) : null)
    },
  })
