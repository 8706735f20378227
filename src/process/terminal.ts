import { spawn, spawnSync } from 'node:child_process'
import { closeSync, constants as files, openSync, readSync } from 'node:fs'
import { createRequire } from 'node:module'
import { constants } from 'node:os'
import { errorText } from '../base/errors.ts'
import { SCRUBBED_PATH } from '../policy/environment.ts'
import { containedModule } from './native-modules.ts'
import type { TerminalSides } from './terminal-stream.ts'

/** The native part of `@lydell/node-pty`, pinned to a version. Its JavaScript classes close a terminal with unread output. */
export interface NativePty {
  fork(
    file: string,
    args: readonly string[],
    env: readonly string[],
    cwd: string,
    cols: number,
    rows: number,
    uid: number,
    gid: number,
    utf8: boolean,
    helper: string,
    onExit: (code: number, signal: number) => void,
  ): { readonly fd: number; readonly pid: number; readonly pty: string }
  /** Both ends of a terminal, open without close-on-exec; `pty` is the path of `slave`. */
  open(cols: number, rows: number): { readonly master: number; readonly slave: number; readonly pty: string }
  resize(fd: number, cols: number, rows: number): void
}

export const PTY_PACKAGE = '@lydell/node-pty'
const PTY_BINARY = 'pty.node'

const isNative = (thing: unknown): thing is NativePty =>
  typeof thing === 'object' &&
  thing !== null &&
  ['fork', 'open', 'resize'].every((name) => typeof (thing as Record<string, unknown>)[name] === 'function')

const installed = (require: NodeJS.Require): unknown => {
  const { requireBinary } = require(`${PTY_PACKAGE}/requireBinary.js`) as { requireBinary: (file: string) => unknown }
  return requireBinary(PTY_BINARY)
}

/** Loads the native part and the path of its spawn helper, or returns why that fails. */
export const loadPty = (): { readonly native: NativePty; readonly helper: string } | { readonly problem: string } => {
  try {
    const require = createRequire(import.meta.url)
    const native = containedModule(PTY_BINARY) ?? installed(require)
    if (!isNative(native)) return { problem: `${PTY_PACKAGE} has an unknown version` }
    const darwin = process.platform === 'darwin'
    return { native, helper: darwin ? require.resolve(`${PTY_PACKAGE}-darwin-${process.arch}/spawn-helper`) : 'none' }
  } catch (error) {
    return { problem: `a terminal needs the package ${PTY_PACKAGE}: npm install ${PTY_PACKAGE} (${errorText(error).split('\n')[0]})` }
  }
}

/** Why terminals are impossible here, or null if they work. */
export const terminalProblem = (): string | null => {
  const pty = loadPty()
  return 'problem' in pty ? pty.problem : null
}

export interface Ended {
  readonly code: number
  /** 0: none. */
  readonly signal: number
}

/** A program on its terminal. */
export interface OnTerminal extends TerminalSides {
  readonly ended: Promise<Ended>
}

/** Settings that pass bytes unchanged (termios(3)). */
const RAW = ['raw', '-echo', '-echoe', '-echok', '-echoctl', '-echoke', '-iexten', 'cs8', '38400']
/** Exit status of a shell for a command that it could not start. */
export const EXIT_FAILURE = 126

const LINE_FEED = 10
const CHUNK_BYTES = 64 * 1024

/** Reads the program's environment, one line of JSON, and what follows it. */
export const readEnvironment = (control: number): { readonly env: Record<string, string>; readonly rest: string } => {
  const chunks: Buffer[] = []
  for (;;) {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
    const read = chunk.subarray(0, readSync(control, chunk))
    if (read.length === 0) throw new Error('no environment was set')
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
 * Starts a program with a raw terminal as output and our stdin as input. This process leads the session, and the first terminal that a
 * leader opens becomes the session's (tty_ioctl(4)), so /dev/tty is the same one.
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
  // The program would inherit the open end, so its number is /dev/null there.
  const stdio = Array.from({ length: master + 1 }, (_one, at): 'ignore' | number => (at === master ? nothing : 'ignore'))
  stdio.splice(0, 3, 0, own, own)
  const child = spawn(file, args, { env, stdio, shell: false })
  child.once('exit', (code, signal) => resolve({ code: code ?? 0, signal: signal === null ? 0 : constants.signals[signal] }))
  child.once('error', (problem) => {
    process.stderr.write(`${problem.message}\n`)
    resolve({ code: EXIT_FAILURE, signal: 0 })
  })
  closeSync(nothing)
  return { master, slave: own, ended }
}
