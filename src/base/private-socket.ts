import { randomBytes } from 'node:crypto'
import { lstatSync, unlinkSync } from 'node:fs'
import { chmod, link, lstat, mkdir, rename, rm, stat } from 'node:fs/promises'
import type { ListenOptions, Server } from 'node:net'
import { dirname, join } from 'node:path'
import { AppError, attempt, errnoOf } from './errors.ts'
import { writableByOthers } from './file-rights.ts'
import { octal } from './octal.ts'
import { checkSocketPath, claimSocketPath } from './unix-socket.ts'

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
