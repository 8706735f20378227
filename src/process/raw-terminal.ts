import { spawn, spawnSync } from 'node:child_process'
import { closeSync, constants as files, openSync, readSync } from 'node:fs'
import { constants } from 'node:os'
import { SCRUBBED_PATH } from '../policy/environment.ts'
import type { NativePty } from './native-pty.ts'

export interface Ended {
  readonly code: number
  /** 0: none. */
  readonly signal: number
}

/** A program on its terminal. `release` closes what keeps the terminal from being hung up while the program lives. */
export interface OnTerminal {
  readonly fd: number
  readonly ended: Promise<Ended>
  release(): void
}

/** Nothing is changed between program and reader (termios(3)). */
const RAW = ['raw', '-echo', '-echoe', '-echok', '-echoctl', '-echoke', '-iexten', 'cs8', '38400']
/** What a shell reports of a command that it could not start. */
export const EXIT_FAILURE = 126

const LINE_FEED = 10
const CHUNK_BYTES = 64 * 1024

/** The environment of the program, one line of JSON, and what came behind it. */
export const readEnvironment = (control: number): { readonly env: Record<string, string>; readonly rest: string } => {
  const chunks: Buffer[] = []
  for (;;) {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
    const read = chunk.subarray(0, readSync(control, chunk))
    if (read.length === 0) throw new Error('whoever started this did not say which environment')
    const end = read.indexOf(LINE_FEED)
    chunks.push(end === -1 ? read : read.subarray(0, end))
    if (end === -1) continue
    const env = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, string>
    return { env, rest: read.subarray(end + 1).toString() }
  }
}

interface RawStart {
  readonly words: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly cols: number
  readonly rows: number
}

/**
 * Starts a program whose output and errors are a terminal that passes them on as they are, and whose input is ours. We lead the
 * session, and the first terminal that a leader opens becomes that of its session (tty_ioctl(4)): /dev/tty is it, too.
 */
export const startRaw = (native: NativePty, { words, env, cols, rows }: RawStart): OnTerminal => {
  const { master, slave, pty } = native.open(cols, rows)
  const own = openSync(pty, files.O_RDWR)
  closeSync(slave)
  const { status, error } = spawnSync('stty', RAW, { stdio: [own, 'ignore', 'ignore'], env: { PATH: SCRUBBED_PATH } })
  if (status !== 0) throw new Error(`stty of coreutils cannot set up a terminal: ${error?.message ?? `status ${status}`}`)
  const nothing = openSync('/dev/null', files.O_RDWR)
  const [file = '', ...args] = words
  const { promise: ended, resolve } = Promise.withResolvers<Ended>()
  // The open end would be inherited: in the program its number stands for /dev/null.
  const stdio = Array.from({ length: master + 1 }, (_one, at): 'ignore' | number => (at === master ? nothing : 'ignore'))
  stdio.splice(0, 3, 0, own, own)
  const child = spawn(file, args, { env, stdio, shell: false })
  child.once('exit', (code, signal) => resolve({ code: code ?? 0, signal: signal === null ? 0 : constants.signals[signal] }))
  child.once('error', (problem) => {
    process.stderr.write(`${problem.message}\n`)
    resolve({ code: EXIT_FAILURE, signal: 0 })
  })
  closeSync(nothing)
  return { fd: master, ended, release: () => closeSync(own) }
}
