import { closeSync } from 'node:fs'
import { createRequire } from 'node:module'
import { Socket } from 'node:net'
import { getSystemErrorName } from 'node:util'
import { errorText } from '../base/errors.ts'
import { containedModule } from './native-modules.ts'
import type { ExitStatus } from './signals.ts'

type NativeFunction = (...values: readonly unknown[]) => number

/** What we use of the native part of `koffi`, pinned to a version. It calls functions of shared libraries. */
interface Koffi {
  load(library: string): { func(prototype: string): NativeFunction }
  /** Address of the first byte. Buffers outside of Node's pool do not move. */
  address(bytes: Uint8Array): bigint
  errno(): number
}

const PROTOTYPES = {
  posix_spawn: 'int posix_spawn(void *pid, void *path, void *actions, void *attributes, void *argv, void *envp)',
  attributes: 'int posix_spawnattr_init(void *attributes)',
  setFlags: 'int posix_spawnattr_setflags(void *attributes, short flags)',
  setDefault: 'int posix_spawnattr_setsigdefault(void *attributes, void *signals)',
  setMask: 'int posix_spawnattr_setsigmask(void *attributes, void *signals)',
  fillSignals: 'int sigfillset(void *signals)',
  emptySignals: 'int sigemptyset(void *signals)',
  actions: 'int posix_spawn_file_actions_init(void *actions)',
  addDup: 'int posix_spawn_file_actions_adddup2(void *actions, int from, int to)',
  addOpen: 'int posix_spawn_file_actions_addopen(void *actions, int descriptor, void *path, int flags, uint mode)',
  addDirectory: 'int posix_spawn_file_actions_addchdir_np(void *actions, void *path)',
  endActions: 'int posix_spawn_file_actions_destroy(void *actions)',
  socketpair: 'int socketpair(int domain, int type, int protocol, void *ends)',
  fcntl: 'int fcntl(int descriptor, int command, ...)',
  waitpid: 'int waitpid(int pid, void *status, int options)',
} as const

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

/** A program to start in a new session, with sockets as the standard descriptors and those after them. */
export interface Spawn {
  readonly file: string
  /** With the name of the program as first word. */
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly cwd: string
  /** How many descriptors the program gets. */
  readonly descriptors: number
  /** Without it, descriptor 0 is /dev/null. */
  readonly stdin: boolean
}

export interface Spawned {
  readonly pid: number
  /** Our ends by descriptor of the program. */
  readonly stdio: readonly (Socket | null)[]
}

const failure = (call: string, errno: number): Error => {
  const code = getSystemErrorName(-errno)
  return Object.assign(new Error(`${call} ${code}`), { code, errno: -errno, syscall: call })
}

const text = (value: string): Buffer => {
  if (value.includes('\0')) throw new TypeError('a word of a command and its environment cannot contain a NUL byte')
  return Buffer.from(`${value}\0`)
}

/** Starts programs by posix_spawn(3). It copies no page table, so its time does not depend on the memory of this process. */
export class PosixSpawn {
  readonly #koffi: Koffi
  readonly #c: Record<keyof typeof PROTOTYPES, NativeFunction>
  readonly #attributes = Buffer.alloc(STRUCTURE_BYTES)
  readonly #status = new Int32Array(1)

  /** Throws if the C library lacks a function. */
  constructor(koffi: Koffi) {
    const library = koffi.load('libc.so.6')
    const functions = Object.entries(PROTOTYPES).map(([name, prototype]) => [name, library.func(prototype)])
    this.#koffi = koffi
    this.#c = Object.fromEntries(functions) as Record<keyof typeof PROTOTYPES, NativeFunction>
    const signals = Buffer.alloc(STRUCTURE_BYTES)
    this.#check('attributes', this.#attributes)
    this.#check('setFlags', this.#attributes, SPAWN_FLAGS)
    this.#check('emptySignals', signals)
    this.#check('setMask', this.#attributes, signals)
    this.#check('fillSignals', signals)
    this.#check('setDefault', this.#attributes, signals)
  }

  /** Returns after the program was executed. Throws the error of the system, and then no program runs. */
  start(spawn: Spawn): Spawned {
    const [stdio, its]: [(Socket | null)[], (number | null)[]] = [[], []]
    try {
      for (let at = 0; at < spawn.descriptors; at++) {
        const pair = at === 0 && !spawn.stdin ? null : this.#pair(spawn.descriptors)
        its.push(pair?.[1] ?? null)
        stdio.push(pair && new Socket({ fd: pair[0], readable: at > 0, writable: true }))
      }
      return { pid: this.#spawn(spawn, its), stdio }
    } catch (error) {
      for (const end of stdio) end?.destroy()
      throw error
    } finally {
      for (const end of its) if (end !== null) closeSync(end)
    }
  }

  /** How a child ended, or null while it lives. Afterwards its PID may be reused. */
  reap(pid: number): ExitStatus | null {
    const reaped = this.#c.waitpid(pid, this.#status, WNOHANG)
    if (reaped === 0) return null
    if (reaped !== pid) throw failure('waitpid', this.#koffi.errno())
    const status = this.#status[0] ?? 0
    const signal = status & 0x7f
    return signal === 0 ? { code: (status >> 8) & 0xff, signal: null } : { code: null, signal }
  }

  #spawn({ file, argv, env, cwd, stdin }: Spawn, its: readonly (number | null)[]): number {
    const actions = Buffer.alloc(STRUCTURE_BYTES)
    const pid = new Int32Array(1)
    const environment = Object.entries(env).map(([name, value]) => `${name}=${value}`)
    const path = text(file)
    const [words, variables] = [this.#strings(argv), this.#strings(environment)]
    this.#check('actions', actions)
    try {
      this.#check('addDirectory', actions, text(cwd))
      if (!stdin) this.#check('addOpen', actions, 0, text('/dev/null'), 0, 0)
      for (const [at, end] of its.entries()) if (end !== null) this.#check('addDup', actions, end, at)
      const errno = this.#c.posix_spawn(pid, path, actions, this.#attributes, words, variables)
      if (errno !== 0) throw failure(`spawn ${file}`, errno)
      return pid[0] ?? 0
    } finally {
      this.#c.endActions(actions)
    }
  }

  /** A connected pair. The program's end has a number above those that it gets, because they are set one after another. */
  #pair(above: number): [ours: number, its: number] {
    const ends = new Int32Array(2)
    if (this.#c.socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) !== 0) throw failure('socketpair', this.#koffi.errno())
    const [ours = 0, its = 0] = ends
    if (its >= above) return [ours, its]
    const moved = this.#c.fcntl(its, F_DUPFD_CLOEXEC, 'int', above)
    const errno = this.#koffi.errno()
    closeSync(its)
    if (moved !== -1) return [ours, moved]
    closeSync(ours)
    throw failure('fcntl', errno)
  }

  /** An array of C strings: addresses with a null at the end, and the bytes in the same block, so that all live equally long. */
  #strings(values: readonly string[]): Buffer {
    const bytes = values.map(text)
    const addresses = 8 * (values.length + 1)
    const block = Buffer.alloc(addresses + bytes.reduce((sum, { length }) => sum + length, 0))
    const start = this.#koffi.address(block)
    let at = addresses
    for (const [index, value] of bytes.entries()) {
      block.writeBigUInt64LE(start + BigInt(at), 8 * index)
      at += value.copy(block, at)
    }
    return block
  }

  #check(call: keyof typeof PROTOTYPES, ...values: unknown[]): void {
    const errno = this.#c[call](...values)
    if (errno !== 0) throw failure(call, errno)
  }
}

const ASSET = 'koffi.node'
export const KOFFI_PACKAGE = `@koromix/koffi-linux-${process.arch}`

let loaded: PosixSpawn | { readonly problem: string } | null = null

const load = (): PosixSpawn | { readonly problem: string } => {
  if (process.platform !== 'linux') return { problem: 'it is used on Linux only' }
  try {
    const file = `${KOFFI_PACKAGE}/linux_${process.arch}/koffi.node`
    return new PosixSpawn((containedModule(ASSET) ?? createRequire(import.meta.url)(file)) as Koffi)
  } catch (error) {
    return { problem: errorText(error).split('\n')[0] ?? '' }
  }
}

/** The same for the whole process, or why posix_spawn(3) cannot be called here. */
export const posixSpawn = (): PosixSpawn | { readonly problem: string } => (loaded ??= load())
