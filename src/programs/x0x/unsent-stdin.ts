import { constants, fstatSync, openSync, readFileSync, readdirSync, readlinkSync } from 'node:fs'
import { Socket } from 'node:net'
import { attempt } from '../../base/errors.ts'
import { write } from '../../cli/output.ts'
import type { CliContext } from './context.ts'

const STDIN = '/proc/self/fd/0'

/** Whether the file has not been read. The rest of a file that a shell loop reads is not meant for this command. */
const isAtBeginning = (): boolean => attempt(() => /^pos:\s*0$/m.test(readFileSync('/proc/self/fdinfo/0', 'utf8'))) ?? true

/** Whether the parent process also has this socket and may read from it. */
const isShared = (): boolean => {
  const directory = `/proc/${process.ppid}/fd`
  const own = attempt(() => readlinkSync(STDIN))
  const links = attempt(() => readdirSync(directory).map((fd) => attempt(() => readlinkSync(`${directory}/${fd}`))))
  return own === null || links === null || links.includes(own)
}

const nextTurn = async (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Looks for data within the next turns of the event loop. With an empty `buffer`, data is found but not read. */
const findsData = async (fd: number, buffer: Uint8Array): Promise<boolean> => {
  let found = false
  const socket = new Socket({ fd, readable: true, writable: false, onread: { buffer, callback: () => !(found = true) } })
  socket.on('error', () => (found ||= buffer.length === 0))
  socket.resume()
  await nextTurn()
  await nextTurn()
  socket.destroy()
  return found
}

/**
 * Opens the pipe again, so that its other users are not affected; also for writing, because the end of a pipe without a writer would look
 * like data.
 */
const pipeHasData = async (): Promise<boolean> => {
  const fd = attempt(() => openSync(STDIN, constants.O_RDWR | constants.O_NONBLOCK))
  return fd !== null && findsData(fd, new Uint8Array(0))
}

/** Whether standard input has unread data. Reads nothing that another process could read. */
const hasUnreadStdin = async (): Promise<boolean> => {
  const info = attempt(() => fstatSync(0))
  if (info === null) return false
  if (info.isFile()) return info.size > 0 && isAtBeginning()
  // The runtime of the single-file build would read the data.
  if ((!info.isFIFO() && !info.isSocket()) || process.versions['bun'] !== undefined) return false
  // On other systems, the size is the number of waiting bytes.
  if (process.platform !== 'linux') return info.size > 0
  if (info.isFIFO()) return pipeHasData()
  return !isShared() && findsData(0, new Uint8Array(1))
}

/** Warns at the end of a command without stdin that there was input. */
export const noteUnsentStdin = async (context: CliContext, hint: string): Promise<void> => {
  if (context.quiet || context.ownsStdin !== true || !(await hasUnreadStdin())) return
  await write(context.stderr, `x0x: standard input was not sent; ${hint}\n`)
}
