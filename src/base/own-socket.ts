import { connect, type Socket } from 'node:net'

import { foreignSocket } from './console-socket.ts'
import { AppError } from './errors.ts'

/** How long a connection may take to be made. */
const CONNECT_MS = 5_000

const dial = async (path: string): Promise<Socket | null> =>
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
