import { lstat, unlink } from 'node:fs/promises'
import { connect } from 'node:net'
import { AppError } from './errors.ts'

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
