import { constants, fstatSync, openSync, readFileSync, readdirSync, readlinkSync } from 'node:fs'
import { Socket } from 'node:net'
import { attempt } from '../../base/errors.ts'
import { write } from '../../cli/output.ts'
import type { CliContext } from './context.ts'

const STDIN = '/proc/self/fd/0'

/** Nobody has read of the file before us: the rest of a file that a loop of the shell reads is no stdin of ours. */
const isAtBeginning = (): boolean => attempt(() => /^pos:\s*0$/m.test(readFileSync('/proc/self/fdinfo/0', 'utf8'))) ?? true

/** The process that started us has this socket too, and may read on from it. */
const isShared = (): boolean => {
  const directory = `/proc/${process.ppid}/fd`
  const own = attempt(() => readlinkSync(STDIN))
  const links = attempt(() => readdirSync(directory).map((fd) => attempt(() => readlinkSync(`${directory}/${fd}`))))
  return own === null || links === null || links.includes(own)
}

const nextTurn = async (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Waits for nothing: what is there, the next turns of the event loop find. `buffer`: without room, data is found and left where it is. */
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

/** Opened anew, which changes nothing for others that have the pipe; for writing too, because the end of a pipe that nobody writes to would look like data. */
const pipeHasData = async (): Promise<boolean> => {
  const fd = attempt(() => openSync(STDIN, constants.O_RDWR | constants.O_NONBLOCK))
  return fd !== null && findsData(fd, new Uint8Array(0))
}

/** Whether standard input has data that nobody has read. Reads nothing that somebody else could read. */
const hasUnreadStdin = async (): Promise<boolean> => {
  const info = attempt(() => fstatSync(0))
  if (info === null) return false
  if (info.isFile()) return info.size > 0 && isAtBeginning()
  // The runtime of the single file reads where it is asked to look.
  if ((!info.isFIFO() && !info.isSocket()) || process.versions['bun'] !== undefined) return false
  // Elsewhere the size is what waits there.
  if (process.platform !== 'linux') return info.size > 0
  if (info.isFIFO()) return pipeHasData()
  return !isShared() && findsData(0, new Uint8Array(1))
}

/** Says at the end of a command that got no stdin that there was some. */
export const noteUnsentStdin = async (context: CliContext, hint: string): Promise<void> => {
  if (context.quiet || context.ownsStdin !== true || !(await hasUnreadStdin())) return
  await write(context.stderr, `x0x: standard input was not sent; ${hint}\n`)
}
