import { closeSync, constants as files, openSync, readSync, write } from 'node:fs'
import { Socket } from 'node:net'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { ReadStream } from 'node:tty'
import { promisify } from 'node:util'
import { errnoOf } from '../base/errors.ts'
import { signalName } from '../base/format.ts'
import { EXIT_FAILURE, type Ended, type NativePty, type OnTerminal, loadPty, readEnvironment, startRaw } from './terminal.ts'

/** After the program's end, output is read until it pauses for this long. A descendant may hold the terminal for ever. */
const QUIET_MS = 50
/** Pauses before writing to a full terminal again. They grow, because free space is not reported. */
const TYPE_PAUSE_MS = 1
const MAX_TYPE_PAUSE_MS = 32
/** End of file is a character on a terminal (termios, VEOF). */
const END_OF_FILE = '\u0004'
const LINE_FEED = 10
/** Signals that are sent to this process and to the program. Only the program acts on them. */
const LEFT_TO_THE_PROGRAM = ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const

/** Bytes of one read. */
const REST_BYTES = 64 * 1024

const writeTo = promisify(write)

/**
 * Reads written but undelivered output. On Linux a kernel worker delivers it, possibly late. A read waits for the worker, the event loop's
 * poll does not. Empty if no output is left.
 */
const restOf = (fd: number): Buffer => {
  const rest = Buffer.allocUnsafe(REST_BYTES)
  try {
    return rest.subarray(0, readSync(fd, rest))
  } catch {
    // EAGAIN means that no output is available, and EIO that no process has the program's end open.
    return rest.subarray(0, 0)
  }
}

/** Copies the terminal's output to standard output at the speed of its reader. `quiet` resolves when no more output comes. */
const show = (terminal: ReadStream, fd: number): { quiet(): Promise<void> } => {
  const heard = { last: performance.now(), ended: false }
  const { promise: over, resolve } = Promise.withResolvers<void>()
  const take = (chunk: Buffer): void => {
    heard.last = performance.now()
    if (process.stdout.write(chunk)) return
    terminal.pause()
    process.stdout.once('drain', () => {
      heard.last = performance.now()
      terminal.resume()
    })
  }
  terminal.on('data', take)
  // EIO means that no process has the program's end open.
  const end = (): void => {
    heard.ended = true
    resolve()
  }
  terminal.on('error', end).on('close', end)
  const quiet = async (): Promise<void> => {
    for (let before = NaN; !heard.ended && (terminal.isPaused() || heard.last !== before);) {
      before = heard.last
      await Promise.race([sleep(QUIET_MS), over])
      // On a busy machine a late timer fires before bytes that have arrived, so those are read first.
      await nextTurn()
      const rest = heard.ended || terminal.isPaused() ? null : restOf(fd)
      if (rest !== null && rest.length > 0) take(rest)
    }
    if (process.stdout.writableLength > 0) await new Promise<void>((resolve) => process.stdout.write('', () => resolve()))
  }
  return { quiet }
}

/** Reads lines of `COLS ROWS`, starting with `text`. */
const followSize = (control: number, text: string, resize: (cols: number, rows: number) => void): void => {
  // A socket, because a read in the thread pool would keep the process from ending.
  const sizes = new Socket({ fd: control, readable: true, writable: false })
  let begun = text
  const take = (part: string): void => {
    const lines = `${begun}${part}`.split('\n')
    begun = lines.pop() ?? ''
    for (const line of lines) {
      const [cols = 0, rows = 0] = line.split(' ').map(Number)
      if (cols > 0 && rows > 0) resize(cols, rows)
    }
  }
  take('')
  sizes.on('data', (part) => take(String(part)))
  sizes.on('error', () => undefined)
}

/** Writes without the terminal's stream, which loops on a full terminal and blocks all else, even the detection of the program's end. */
const type = async (fd: number, bytes: Uint8Array, terminal: ReadStream): Promise<void> => {
  let pause = TYPE_PAUSE_MS
  for (let at = 0; at < bytes.length && !terminal.destroyed;) {
    try {
      at += (await writeTo(fd, bytes, at)).bytesWritten
      pause = TYPE_PAUSE_MS
    } catch (error) {
      if (errnoOf(error) !== 'EAGAIN') throw error
      // The terminal is full while its program does not read.
      await sleep(pause)
      pause = Math.min(2 * pause, MAX_TYPE_PAUSE_MS)
    }
  }
}

const passInput = async (fd: number, terminal: ReadStream): Promise<void> => {
  let last = LINE_FEED
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    last = chunk.at(-1) ?? last
    await type(fd, chunk, terminal)
  }
  // After an incomplete line, the first end of file only delivers the line.
  await type(fd, Buffer.from(last === LINE_FEED ? END_OF_FILE : END_OF_FILE.repeat(2)), terminal)
}

/** Standard input is typed into the terminal, which handles lines and signals. */
const startCooked = (
  { native, helper }: { readonly native: NativePty; readonly helper: string },
  words: readonly string[],
  cols: number,
  rows: number,
): OnTerminal => {
  const [file = '', ...args] = words
  const { promise: ended, resolve } = Promise.withResolvers<Ended>()
  const env = Object.entries(process.env).map(([name, value]) => `${name}=${value ?? ''}`)
  const onExit = (code: number, signal: number): void => resolve({ code, signal })
  const { fd, pty } = native.fork(file, args, env, process.cwd(), cols, rows, -1, -1, true, helper, onExit)
  // Many programs close their streams shortly before they end. An open descriptor keeps the terminal from being hung up then.
  const held = openSync(pty, files.O_RDWR | files.O_NOCTTY)
  return { fd, ended, release: () => closeSync(held) }
}

/** Ends with the status or signal of the program. */
const endAs = ({ code, signal }: Ended): number => {
  if (signal === 0) return code
  const name = signalName(signal)
  if (name !== null) {
    process.removeAllListeners(name)
    process.kill(process.pid, name)
  }
  return 128 + signal
}

/**
 * Holds the terminal of one program, with the arguments `cooked|raw CONTROL COLS ROWS PROGRAM ARGUMENT…`. The terminal is the program's
 * output and, unless it is raw, also its input.
 */
export const main = async ([mode, control = '', cols = '', rows = '', ...words]: readonly string[]): Promise<number> => {
  const pty = loadPty()
  if ('problem' in pty) {
    process.stderr.write(`${pty.problem}\n`)
    return EXIT_FAILURE
  }
  for (const signal of LEFT_TO_THE_PROGRAM) process.on(signal, () => undefined)
  // The reader is gone. Our exit closes the terminal, which hangs up the program.
  process.stdout.on('error', () => process.exit(EXIT_FAILURE))
  const [isRaw, wide, high] = [mode === 'raw', Number(cols), Number(rows)]
  const { env, rest } = isRaw ? readEnvironment(Number(control)) : { env: {}, rest: '' }
  const { fd, ended, release } = isRaw ? startRaw(pty.native, { words, env, cols: wide, rows: high }) : startCooked(pty, words, wide, high)
  const terminal = new ReadStream(fd)
  const screen = show(terminal, fd)
  // Fails if standard input or the terminal is closed. Then no more input is typed.
  if (!isRaw) void passInput(fd, terminal).catch(() => undefined)
  followSize(Number(control), rest, (columns, lines) => void (terminal.destroyed || pty.native.resize(fd, columns, lines)))
  const end = await ended
  release()
  await screen.quiet()
  return endAs(end)
}
