import { constants as files, openSync } from 'node:fs'
import { Socket } from 'node:net'
import { finished } from 'node:stream/promises'
import { signalName } from '../base/format.ts'
import { EXIT_FAILURE, type Ended, type NativePty, type OnTerminal, loadPty, readEnvironment, startRaw } from './terminal.ts'
import { TerminalStream } from './terminal-stream.ts'

/** Signals that are sent to this process and to the program. Only the program acts on them. */
const LEFT_TO_THE_PROGRAM = ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const

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
  const { fd: master, pty } = native.fork(file, args, env, process.cwd(), cols, rows, -1, -1, true, helper, onExit)
  return { master, slave: openSync(pty, files.O_RDWR | files.O_NOCTTY), ended }
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
  const { ended, ...sides } = isRaw ? startRaw(pty.native, { words, env, cols: wide, rows: high }) : startCooked(pty, words, wide, high)
  const terminal = new TerminalStream(sides)
  terminal.pipe(process.stdout)
  // If standard input fails, no more is typed.
  if (!isRaw) process.stdin.on('error', () => undefined).pipe(terminal)
  followSize(Number(control), rest, (columns, lines) => void (terminal.isOpen && pty.native.resize(sides.master, columns, lines)))
  const end = await ended
  await terminal.finish()
  await finished(terminal, { writable: false })
  if (process.stdout.writableLength > 0) await new Promise<void>((resolve) => process.stdout.write('', () => resolve()))
  return endAs(end)
}
