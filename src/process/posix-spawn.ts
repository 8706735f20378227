import { closeSync, constants as files } from 'node:fs'
import { Socket } from 'node:net'
import { type Duplex, PassThrough } from 'node:stream'
import { errorText } from '../base/errors.ts'
import type { Terminal } from '../executor-api/local.ts'
import { type CLibrary, cText, loadCLibrary } from './c-library.ts'
import { type Assignment, OwnTerminal } from './own-terminal.ts'
import type { ExitStatus } from './signals.ts'

// Linux, x64 and arm64.
const AF_UNIX = 1
const SOCK_STREAM = 1
const SOCK_CLOEXEC = 0o2000000
const F_DUPFD_CLOEXEC = 1030
const WNOHANG = 1
/** spawn.h: signals with their default action, none blocked, and a new session. */
const SPAWN_FLAGS = 0x04 | 0x08 | 0x80
/** More than any of the C library's structures has here: 336 bytes for attributes, 128 for signals, 80 for actions. */
const STRUCTURE_BYTES = 1_024
/** File of a program that gets no input. */
const NO_INPUT = { path: '/dev/null', flags: files.O_RDONLY }

/** A program to start in a new session, with sockets as the standard descriptors and those after them. */
export interface Spawn {
  readonly file: string
  /** With the name of the program as first word. */
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly cwd: string
  /** How many descriptors the program gets. */
  readonly descriptors: number
  /** Without it, descriptor 0 is /dev/null, or a terminal that reports the end of file. */
  readonly stdin: boolean
  /** A terminal that this process holds, as the standard descriptors, or null. With `raw`, descriptor 0 stays a socket. */
  readonly terminal: Terminal | null
}

export interface Spawned {
  readonly pid: number
  /** Our ends by descriptor of the program. A terminal is one stream for all, and then the error output is empty. */
  readonly stdio: readonly (Duplex | null)[]
  readonly terminal: OwnTerminal | null
}

/** Starts programs by posix_spawn(3). It copies no page table, so its time does not depend on the memory of this process. */
export class PosixSpawn {
  readonly #c: CLibrary
  readonly #attributes = Buffer.alloc(STRUCTURE_BYTES)
  readonly #status = new Int32Array(1)

  constructor(c: CLibrary) {
    const signals = Buffer.alloc(STRUCTURE_BYTES)
    this.#c = c
    c.check('attributes', [this.#attributes])
    c.check('setFlags', [this.#attributes, SPAWN_FLAGS])
    c.check('emptySignals', [signals])
    c.check('setMask', [this.#attributes, signals])
    c.check('fillSignals', [signals])
    c.check('setDefault', [this.#attributes, signals])
  }

  /** Returns after the program was executed. Throws the error of the system, and then no program runs. */
  start(spawn: Spawn): Spawned {
    const terminal = spawn.terminal && new OwnTerminal(this.#c, spawn.terminal)
    const [ends, its]: [(Socket | null)[], (number | null)[]] = [[], []]
    try {
      for (let at = 0; at < (terminal?.firstDescriptor ?? spawn.descriptors); at++) {
        const pair = at === 0 && !spawn.stdin ? null : this.#pair(spawn.descriptors)
        its.push(pair?.[1] ?? null)
        ends.push(pair && new Socket({ fd: pair[0], readable: at > 0, writable: true }))
      }
      const sockets = its.map((from, to): Assignment => ({ to, from: from ?? NO_INPUT }))
      const pid = this.#spawn(spawn, [...sockets, ...(terminal?.assignments ?? [])])
      return { pid, stdio: terminal === null ? ends : streamsOf(terminal, ends, spawn.stdin), terminal }
    } catch (error) {
      for (const end of [...ends, terminal?.stream]) end?.destroy()
      throw error
    } finally {
      for (const end of its) if (end !== null) closeSync(end)
    }
  }

  /** How a child ended, or null while it lives. Afterwards its PID may be reused. */
  reap(pid: number): ExitStatus | null {
    if (this.#c.call('waitpid', pid, this.#status, WNOHANG) === 0) return null
    const status = this.#status[0] ?? 0
    const signal = status & 0x7f
    return signal === 0 ? { code: (status >> 8) & 0xff, signal: null } : { code: null, signal }
  }

  #spawn({ file, argv, env, cwd }: Spawn, assignments: readonly Assignment[]): number {
    const actions = Buffer.alloc(STRUCTURE_BYTES)
    const pid = new Int32Array(1)
    const environment = Object.entries(env).map(([name, value]) => `${name}=${value}`)
    const path = cText(file)
    const [words, variables] = [this.#c.strings(argv), this.#c.strings(environment)]
    this.#c.check('actions', [actions])
    try {
      this.#c.check('addDirectory', [actions, cText(cwd)])
      for (const { to, from } of assignments)
        if (typeof from === 'number') this.#c.check('addDup', [actions, from, to])
        else this.#c.check('addOpen', [actions, to, cText(from.path), from.flags, 0])
      this.#c.check('posix_spawn', [pid, path, actions, this.#attributes, words, variables], `spawn ${file}`)
      return pid[0] ?? 0
    } finally {
      this.#c.check('endActions', [actions])
    }
  }

  /** A connected pair. The program's end has a number above those that it gets, because they are set one after another. */
  #pair(above: number): [ours: number, its: number] {
    const ends = new Int32Array(2)
    this.#c.call('socketpair', AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
    const [ours = 0, its = 0] = ends
    if (its >= above) return [ours, its]
    try {
      return [ours, this.#c.call('fcntl', its, F_DUPFD_CLOEXEC, 'int', above)]
    } catch (error) {
      closeSync(ours)
      throw error
    } finally {
      closeSync(its)
    }
  }
}

/** A terminal without input reports the end of file. */
const streamsOf = ({ stream, firstDescriptor }: OwnTerminal, sockets: readonly (Socket | null)[], stdin: boolean): Spawned['stdio'] => {
  const [input = stdin ? stream : null] = sockets
  if (firstDescriptor === 0 && !stdin) stream.end()
  return [input, stream, new PassThrough().end()]
}

let loaded: PosixSpawn | { readonly problem: string } | null = null

const load = (): PosixSpawn | { readonly problem: string } => {
  if (process.platform !== 'linux') return { problem: 'it is used on Linux only' }
  try {
    return new PosixSpawn(loadCLibrary())
  } catch (error) {
    return { problem: errorText(error).split('\n')[0] ?? '' }
  }
}

/** The same for the whole process, or why posix_spawn(3) cannot be called here. */
export const posixSpawn = (): PosixSpawn | { readonly problem: string } => (loaded ??= load())
