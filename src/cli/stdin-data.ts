import { constants, openSync } from 'node:fs'
import { Socket } from 'node:net'
import { attempt } from '../base/errors.ts'

/** Tells whether standard input has data that nobody has read. The single-file build has another module in its place. */
export interface StdinData {
  isWaiting(): Promise<boolean>
}

const nextTurn = async (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Data that has arrived is found within two turns of the event loop. */
const found = async (socket: Socket, isFound: () => boolean): Promise<boolean> => {
  socket.resume()
  await nextTurn()
  await nextTurn()
  return isFound()
}

/** The pipe opened once more, also for writing, because the end of a pipe without a writer would look like data. */
const openPipe = (): number | null => attempt(() => openSync('/proc/self/fd/0', constants.O_RDWR | constants.O_NONBLOCK))

/** Takes nothing from the pipe: with an empty buffer, data makes the read fail. */
const pipeHasData = async (fd: number): Promise<boolean> => {
  let failed = false
  const socket = new Socket({ fd, readable: true, writable: false, onread: { buffer: new Uint8Array(0), callback: () => false } })
  socket.on('error', () => (failed = true))
  const isWaiting = await found(socket, () => failed)
  socket.destroy()
  return isWaiting
}

/** Data of a pipe, which other processes may read as well. */
export const pipeData = (): StdinData => ({
  isWaiting: async () => {
    const fd = openPipe()
    return fd !== null && pipeHasData(fd)
  },
})

/**
 * Data of a socket that no other process reads, because a socket cannot be opened once more: it takes the first byte. Not closed, because
 * that would free descriptor 0.
 */
export const socketData = (): StdinData => {
  let taken = false
  const onread = { buffer: new Uint8Array(1), callback: () => !(taken = true) }
  // A socket of another kind than a stream is refused.
  const socket = attempt(() => new Socket({ fd: 0, readable: true, writable: false, onread }))
  socket?.on('error', () => undefined).unref()
  return { isWaiting: async () => socket !== null && (taken || found(socket, () => taken)) }
}
