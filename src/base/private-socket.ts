import { mkdir, stat } from 'node:fs/promises'
import type { ListenOptions, Server } from 'node:net'
import { dirname } from 'node:path'

import { AppError } from './errors.ts'
import { writableByOthers } from './file-rights.ts'
import { octal } from './octal.ts'
import { checkSocketPath, claimSocketPath } from './unix-socket.ts'

/** Where a server listens: on the network or on a unix socket of its own. */
export type ListenAddress =
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

const ONLY_US = 0o700
/** A mask by which a socket is made 0600. */
const NOBODY_ELSE = 0o177

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

const optionsOf = (where: ListenAddress | { readonly fd: number }): ListenOptions & { fd?: number } =>
  'fd' in where ? where : where.kind === 'unix' ? { path: where.path } : { host: where.host, port: where.port }

/**
 * Resolves when the server listens where there is room for it: on a unix socket that only we may connect to. `inUse`: what is said
 * where the address was taken meanwhile. Throws `conflict`.
 */
export const listenPrivately = async (server: Server, options: ListenOptions, inUse: string): Promise<void> => {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const refused = (error: NodeJS.ErrnoException): void =>
    reject(error.code === 'EADDRINUSE' ? new AppError('conflict', inUse, { cause: error }) : error)
  server.once('error', refused)
  const before = options.path === undefined ? null : process.umask(NOBODY_ELSE)
  try {
    // The system makes the socket in this very call, with this mask, so that nobody ever sees it with another mode.
    server.listen(options, resolve)
  } finally {
    if (before !== null) process.umask(before)
  }
  await promise
  server.off('error', refused)
}

/**
 * Resolves when the server listens there; a descriptor listens already. A unix socket that a crash has left is replaced, is
 * for us alone, and is taken away by the runtime when the server is closed. `inUse`: what is said where the address is
 * another's. Throws `conflict`; `loose_permissions` where others could reach the socket, `bad_config` where its path is too long.
 */
export const listenAt = async (server: Server, where: ListenAddress | { readonly fd: number }, inUse: string): Promise<void> => {
  if ('path' in where) await claimPrivateSocket(where.path)
  await listenPrivately(server, optionsOf(where), inUse)
}
