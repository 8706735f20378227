import { randomBytes } from 'node:crypto'
import { lstatSync, statSync, unlinkSync } from 'node:fs'
import { chmod, link, lstat, mkdir, rename, rm, stat, unlink } from 'node:fs/promises'
import { type ListenOptions, type Server, type Socket, connect } from 'node:net'
import { dirname, join } from 'node:path'
import { AppError, attempt, errnoOf, errorText, isMissing } from './errors.ts'
import { writableByOthers } from './file-permissions.ts'
import { octal } from './format.ts'
import type { Environment } from './runtime.ts'

/** Where the system keeps a socket's path: 104 bytes on macOS, 108 on Linux, one of them the end. */
export const MAX_SOCKET_PATH = process.platform === 'darwin' ? 103 : 107

/** True where somebody listens on it. */
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

/** Throws `bad_config` for a path that the system cannot keep. */
export const checkSocketPath = (path: string): void => {
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH) return
  throw new AppError('bad_config', `${path}: the path of a socket has at most ${MAX_SOCKET_PATH} bytes; choose a shorter one`)
}

/**
 * Makes room for our socket: a socket that nobody answers on was left by a crash and is removed. A live
 * one, or anything that is no socket, is `conflict`: somebody else's is never taken away.
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

/** Where a server listens: on the network or on a unix socket of its own. */
export type ListenAddress =
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

const ONLY_US = 0o700
const OURS_ALONE = 0o600

/**
 * What lets other users connect, by entering the socket's directory, or replace the socket, by writing to it or a
 * directory above: one sentence for each. A directory that does not exist is no problem: it is made private.
 */
export const socketDirProblems = async (path: string): Promise<string[]> => {
  const directory = dirname(path)
  const info = await stat(directory).catch(() => null)
  const own = 'the socket wants a directory of its own, which only its user may enter'
  if (info !== null && !info.isDirectory()) return [`${directory} is no directory`]
  const letsIn = info !== null && (info.mode & 0o777 & ~ONLY_US) !== 0
  return [
    ...(info !== null && info.uid !== (process.geteuid?.() ?? info.uid)
      ? [`${directory} belongs to uid ${info.uid}, not to us: ${own}`]
      : []),
    // The remedy is another directory and not chmod, which would be wrong for /tmp.
    ...(letsIn ? [`${directory} lets others in (mode ${octal(info.mode)}): ${own}`] : []),
    ...writableByOthers(directory),
  ]
}

const refuseOpenDirectory = async (path: string): Promise<void> => {
  const problems = await socketDirProblems(path)
  if (problems.length > 0) throw new AppError('loose_permissions', `${path}: ${problems.join('; ')}`, { data: { file: path } })
}

/** As `claimSocketPath`, in a directory that only we may enter; also `loose_permissions`. */
const claimPrivateSocket = async (path: string): Promise<void> => {
  // Checked before the directory is made.
  checkSocketPath(path)
  await refuseOpenDirectory(path)
  await mkdir(dirname(path), { recursive: true, mode: ONLY_US })
  // Another process may have made the directory first: then it is checked like any other.
  await refuseOpenDirectory(path)
  await claimSocketPath(path)
}

/** Resolves when it listens; throws why it cannot. */
export const listening = async (server: Server, options: ListenOptions & { fd?: number }): Promise<void> => {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  server.once('error', reject)
  server.listen(options, resolve)
  await promise
  server.off('error', reject)
}

/** A new directory in this one, for us alone. Its name is short, so that the path of a socket in it fits where that of a usual name does. */
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

/** Gives it the name, which must be nobody's; not every file system has second names. */
const nameIt = async (draft: string, path: string): Promise<void> =>
  link(draft, path).catch(async (error: unknown) => {
    if (!['EPERM', 'ENOTSUP', 'EOPNOTSUPP'].includes(errnoOf(error) ?? '')) throw error
    await rename(draft, path)
  })

/** The runtime takes away the name by which it was bound. */
const takeAwayWith = (server: Server, path: string, { dev, ino }: { readonly dev: bigint; readonly ino: bigint }): void => {
  const close = server.close.bind(server)
  server.close = (done) => {
    const now = attempt(() => lstatSync(path, { bigint: true }))
    if (now?.dev === dev && now.ino === ino) attempt(() => unlinkSync(path))
    return close(done)
  }
}

/**
 * Resolves when the server listens on a unix socket of this mode, which nobody could connect to before it had it: until then it stands in
 * a directory of its own. The mask of the process is not touched, which other parts make their files by. `inUse`: what is said where
 * the path was taken meanwhile. Throws `conflict`.
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
 * Resolves when the server listens there; a descriptor listens already. A unix socket that a crash has left is replaced, is
 * for us alone, and is taken away when the server is closed. `inUse`: what is said where the address is
 * another's. Throws `conflict`; `loose_permissions` where others could reach the socket, `bad_config` where its path is too long.
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

/** Where one user's console listens, and its clients look for it. */
export interface ConsoleSockets {
  /** In a directory of the user's own; null: there is none. */
  readonly own: string | null
  /** Where clients of other makes look: in a directory that all users share. Null: only `own` counts. */
  readonly shared: string | null
}

/** Names the socket; for those who have several consoles, and for tests. */
export const SOCKET_VARIABLE = 'REXEC_SOCKET'

export const consoleSockets = (env: Environment, uid: number): ConsoleSockets => {
  const named = env[SOCKET_VARIABLE]
  if (named !== undefined && named !== '') return { own: named, shared: null }
  const runtime = env['XDG_RUNTIME_DIR']
  const own = runtime === undefined || !runtime.startsWith('/') ? null : join(runtime, 'x0x-console', 'console.sock')
  return { own, shared: `/tmp/.rexec-${uid}` }
}

/**
 * Why what stands at this path is not the console of this user, whoever put it there: it is theirs to connect to, and a command line
 * would be told to it. Undefined: nothing stands there; null: it is a socket of this user that no other may connect to.
 */
export const foreignSocket = (path: string, uid: number): string | null | undefined => {
  try {
    const info = lstatSync(path)
    if (!info.isSocket()) return `${path} is no socket; it belongs to uid ${info.uid}`
    if (info.uid !== uid) return `${path} belongs to uid ${info.uid}, not to us (uid ${uid})`
    return (info.mode & 0o077) === 0 ? null : `${path} lets others connect (mode ${octal(info.mode)})`
  } catch (error) {
    return isMissing(error) ? undefined : errorText(error)
  }
}

/** What is said where the host serves its own socket alone; `problem` is why. */
export const onlyOwn = (problem: string): string =>
  `${problem}: clients of other makes, which know that path alone, cannot connect; ours find the other one. Have it removed, then start the host again`

/** What is done about a path that another user has taken. */
export const squatted = (problem: string): AppError =>
  new AppError(
    'conflict',
    `${problem}; have it removed, or name a socket in a directory of your own, for host and clients: ${SOCKET_VARIABLE}=FILE`,
  )

/** How long a connection may take to be made. */
const CONNECT_MS = 5_000

/** Connects to whoever listens; null: nobody does. */
export const dial = async (path: string): Promise<Socket | null> =>
  new Promise((resolve, reject) => {
    const socket = connect(path)
    const late = setTimeout(() => socket.destroy(new AppError('timeout', `${path}: nobody takes connections there`)), CONNECT_MS)
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

/** Connects to a socket of this user; null: nobody listens there. Throws what `foreign` makes of the reason why it may be somebody else's. */
export const dialOwn = async (path: string, foreign: (problem: string) => AppError): Promise<Socket | null> => {
  const uid = process.geteuid?.() ?? 0
  const before = foreignSocket(path, uid)
  if (before === undefined) return null
  if (before !== null) throw foreign(before)
  const socket = await dial(path)
  if (socket === null) return null
  // Ours may have been gone, and another's there, when we connected.
  const after = foreignSocket(path, uid)
  if (after === null) return socket
  socket.destroy()
  if (after === undefined) return null
  throw foreign(after)
}

/**
 * As `dialOwn`, of a socket that a service made: in a directory that only this user may enter, its mode does not matter. Throws
 * `loose_permissions`.
 */
export const dialService = async (path: string): Promise<Socket | null> =>
  (await socketDirProblems(path)).length === 0 ? dial(path) : dialOwn(path, (problem) => new AppError('loose_permissions', problem))

/**
 * Throws `loose_permissions` where a socket that a secret is about to be sent to may be another user's. Of root, who calls services of
 * other users, the socket belongs to whoever has its directory.
 */
export const assertOwnSocket = async (path: string): Promise<void> => {
  if ((await socketDirProblems(path)).length === 0) return
  const uid = process.geteuid?.() ?? 0
  const problem = foreignSocket(path, uid === 0 ? (attempt(() => statSync(dirname(path)).uid) ?? 0) : uid)
  if (typeof problem === 'string') throw new AppError('loose_permissions', problem)
}
