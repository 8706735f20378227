import { statSync } from 'node:fs'
import { type Socket, connect } from 'node:net'
import { dirname } from 'node:path'
import { foreignSocket } from './console-socket.ts'
import { AppError, attempt } from './errors.ts'
import { socketDirProblems } from './private-socket.ts'

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
