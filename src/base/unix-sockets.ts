import { randomBytes } from 'node:crypto'
import { lstatSync, statSync, unlinkSync } from 'node:fs'
import { chmod, link, lstat, mkdir, rename, rm, stat, unlink } from 'node:fs/promises'
import { type ListenOptions, type Server, type Socket, connect } from 'node:net'
import { dirname, join } from 'node:path'
import { AppError, attempt, errnoOf, errorText, isMissing } from './errors.ts'
import { writableByOthers } from './file-permissions.ts'
import { octal } from './format.ts'
import type { Environment } from './runtime.ts'

/** The size of sun_path without its final NUL, on macOS (104 bytes) and on Linux (108). */
export const MAX_SOCKET_PATH = process.platform === 'darwin' ? 103 : 107

/** Whether a server listens on the socket. */
export const answers = async (path: string): Promise<boolean> => {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>()
  const socket = connect(path)
  socket.once('connect', () => resolve(true))
  socket.once('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') resolve(false)
    else reject(error)
  })
  try {
    return await promise
  } finally {
    socket.destroy()
  }
}

/** Throws `bad_config` for a path that is too long. */
export const checkSocketPath = (path: string): void => {
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH) return
  throw new AppError('bad_config', `${path}: the path of a socket has at most ${MAX_SOCKET_PATH} bytes; choose a shorter one`)
}

/**
 * Makes a path free for a new socket. Removes a socket that no server answers on, which a crash left. Throws `conflict` for a live socket
 * and for anything else, because it may belong to another program.
 */
export const claimSocketPath = async (path: string): Promise<void> => {
  checkSocketPath(path)
  const info = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  if (info === undefined) return
  if (!info.isSocket()) throw new AppError('conflict', `${path} exists and is not a socket; move it away`)
  if (await answers(path)) throw new AppError('conflict', `another daemon answers on ${path}`)
  await unlink(path)
}

/** The address of a server, which is on the network or a unix socket. */
export type ListenAddress =
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

const ONLY_US = 0o700
const OURS_ALONE = 0o600

/**
 * Other users who could connect, through the socket's directory, or replace the socket, by writing to that directory or one above. Each
 * problem is a sentence. A missing directory is fine, because it is created private.
 */
export const socketDirProblems = async (path: string): Promise<string[]> => {
  const directory = dirname(path)
  const info = await stat(directory).catch(() => null)
  const own = 'the socket needs a private directory, which only its user can enter'
  if (info !== null && !info.isDirectory()) return [`${directory} is not a directory`]
  const letsIn = info !== null && (info.mode & 0o777 & ~ONLY_US) !== 0
  return [
    ...(info !== null && info.uid !== (process.geteuid?.() ?? info.uid)
      ? [`${directory} belongs to uid ${info.uid}, not to this user: ${own}`]
      : []),
    // The remedy is another directory, because a chmod would be wrong for /tmp.
    ...(letsIn ? [`${directory} is open to other users (mode ${octal(info.mode)}): ${own}`] : []),
    ...writableByOthers(directory),
  ]
}

const refuseOpenDirectory = async (path: string): Promise<void> => {
  const problems = await socketDirProblems(path)
  if (problems.length > 0) throw new AppError('loose_permissions', `${path}: ${problems.join('; ')}`, { data: { file: path } })
}

/** Like `claimSocketPath`, in a directory that only this user may enter. Also throws `loose_permissions`. */
const claimPrivateSocket = async (path: string): Promise<void> => {
  // This check comes before the directory is created.
  checkSocketPath(path)
  await refuseOpenDirectory(path)
  await mkdir(dirname(path), { recursive: true, mode: ONLY_US })
  // Another process may have created the directory first, so it is checked again.
  await refuseOpenDirectory(path)
  await claimSocketPath(path)
}

export const listening = async (server: Server, options: ListenOptions & { fd?: number }): Promise<void> => {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  server.once('error', reject)
  server.listen(options, resolve)
  await promise
  server.off('error', reject)
}

/** A new private directory in this one. Its name is short, so that the socket path in it fits wherever the usual path does. */
const roomIn = async (directory: string): Promise<string> => {
  const room = join(directory, `.${randomBytes(2).toString('base64url')}`)
  try {
    await mkdir(room, ONLY_US)
    return room
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error
    return roomIn(directory)
  }
}

/** Gives a file its final name without replacing an existing one. Some file systems have no hard links. */
const nameIt = async (draft: string, path: string): Promise<void> =>
  link(draft, path).catch(async (error: unknown) => {
    if (!['EPERM', 'ENOTSUP', 'EOPNOTSUPP'].includes(errnoOf(error) ?? '')) throw error
    await rename(draft, path)
  })

/** Removes the socket at close, because the runtime only removes the name that it was bound to. */
const takeAwayWith = (server: Server, path: string, { dev, ino }: { readonly dev: bigint; readonly ino: bigint }): void => {
  const close = server.close.bind(server)
  server.close = (done) => {
    const now = attempt(() => lstatSync(path, { bigint: true }))
    if (now?.dev === dev && now.ino === ino) attempt(() => unlinkSync(path))
    return close(done)
  }
}

/**
 * Listens on a unix socket. Until the socket has its mode, it is in a private directory, so that other users cannot connect. The umask
 * stays unchanged, because other parts create files with it. `inUse` is the message if the path is taken meanwhile. Throws `conflict`.
 */
export const listenPrivately = async (server: Server, path: string, inUse: string, mode = OURS_ALONE): Promise<void> => {
  const room = await roomIn(dirname(path))
  const draft = join(room, 's')
  try {
    checkSocketPath(draft)
    await listening(server, { path: draft })
    await chmod(draft, mode)
    const made = await lstat(draft, { bigint: true })
    await nameIt(draft, path)
    takeAwayWith(server, path, made)
  } catch (error) {
    server.close()
    throw errnoOf(error) === 'EEXIST' ? new AppError('conflict', inUse, { cause: error }) : error
  } finally {
    await rm(room, { recursive: true, force: true })
  }
}

/**
 * Listens at an address, or on a descriptor that listens already. It replaces a unix socket that a crash left, makes it private, and
 * removes it at close. `inUse` is the message if the address is taken. Throws `conflict`, `loose_permissions` if others could reach the
 * socket, and `bad_config` if its path is too long.
 */
export const listenAt = async (server: Server, where: ListenAddress | { readonly fd: number }, inUse: string): Promise<void> => {
  if ('path' in where) {
    await claimPrivateSocket(where.path)
    await listenPrivately(server, where.path, inUse)
    return
  }
  await listening(server, 'fd' in where ? where : { host: where.host, port: where.port }).catch((error: unknown) => {
    throw errnoOf(error) === 'EADDRINUSE' ? new AppError('conflict', inUse, { cause: error }) : error
  })
}

/** The sockets of one user's console. */
export interface ConsoleSockets {
  /** A socket in a private directory of the user, or null if absent. */
  readonly own: string | null
  /** The path where other implementations look, in a directory that all users share. Null if only `own` counts. */
  readonly shared: string | null
}

/** Names the socket, for users with several consoles and for tests. */
export const SOCKET_VARIABLE = 'REXEC_SOCKET'

export const consoleSockets = (env: Environment, uid: number): ConsoleSockets => {
  const named = env[SOCKET_VARIABLE]
  if (named !== undefined && named !== '') return { own: named, shared: null }
  const runtime = env['XDG_RUNTIME_DIR']
  const own = runtime === undefined || !runtime.startsWith('/') ? null : join(runtime, 'x0x-console', 'console.sock')
  return { own, shared: `/tmp/.rexec-${uid}` }
}

/**
 * Why the socket at this path may not be this user's console. Others can create it, and would then receive command lines. Undefined means
 * that the path is missing. Null means that it is a socket of this user that no other may connect to.
 */
export const foreignSocket = (path: string, uid: number): string | null | undefined => {
  try {
    const info = lstatSync(path)
    if (!info.isSocket()) return `${path} is not a socket; it belongs to uid ${info.uid}`
    if (info.uid !== uid) return `${path} belongs to uid ${info.uid}, not to uid ${uid}`
    return (info.mode & 0o077) === 0 ? null : `${path} lets others connect (mode ${octal(info.mode)})`
  } catch (error) {
    return isMissing(error) ? undefined : errorText(error)
  }
}

/** The warning that the host serves only its private socket. `problem` is the reason. */
export const onlyOwn = (problem: string): string =>
  `${problem}: clients of other vendors only use that path and cannot connect. Remove it, then start the host again`

/** The error for a path that another user has taken. */
export const squatted = (problem: string): AppError =>
  new AppError('conflict', `${problem}; remove it, or set ${SOCKET_VARIABLE}=FILE for host and clients, in a private directory`)

/** Timeout for a connection. */
const CONNECT_MS = 5_000

/** Connects to a socket, or null without a listener. */
export const dial = async (path: string): Promise<Socket | null> =>
  new Promise((resolve, reject) => {
    const socket = connect(path)
    const late = setTimeout(() => socket.destroy(new AppError('timeout', `${path}: no program accepts connections`)), CONNECT_MS)
    socket.once('connect', () => {
      clearTimeout(late)
      resolve(socket)
    })
    socket.once('error', (error: NodeJS.ErrnoException) => {
      clearTimeout(late)
      if (error.code === 'ECONNREFUSED' || error.code === 'ENOENT') resolve(null)
      else reject(error)
    })
  })

/** Connects to a socket of this user, or null without a listener. If it may be another user's, throws the error that `foreign` makes. */
export const dialOwn = async (path: string, foreign: (problem: string) => AppError): Promise<Socket | null> => {
  const uid = process.geteuid?.() ?? 0
  const before = foreignSocket(path, uid)
  if (before === undefined) return null
  if (before !== null) throw foreign(before)
  const socket = await dial(path)
  if (socket === null) return null
  // Another user may have replaced the socket while this process connected.
  const after = foreignSocket(path, uid)
  if (after === null) return socket
  socket.destroy()
  if (after === undefined) return null
  throw foreign(after)
}

/** Like `dialOwn`, for a service's socket, whose mode does not matter in a directory of this user alone. Throws `loose_permissions`. */
export const dialService = async (path: string): Promise<Socket | null> =>
  (await socketDirProblems(path)).length === 0 ? dial(path) : dialOwn(path, (problem) => new AppError('loose_permissions', problem))

/**
 * Throws `loose_permissions` if a socket that is about to receive a secret may be another user's. Root calls services of other users, so
 * for root the owner of the directory counts.
 */
export const assertOwnSocket = async (path: string): Promise<void> => {
  if ((await socketDirProblems(path)).length === 0) return
  const uid = process.geteuid?.() ?? 0
  const problem = foreignSocket(path, uid === 0 ? (attempt(() => statSync(dirname(path)).uid) ?? 0) : uid)
  if (typeof problem === 'string') throw new AppError('loose_permissions', problem)
}
