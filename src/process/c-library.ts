import { createRequire } from 'node:module'
import { getSystemErrorName } from 'node:util'
import { containedModule } from './native-modules.ts'

type NativeFunction = (...values: readonly unknown[]) => number

/** What we use of the native part of `koffi`, pinned to a version. It calls functions of shared libraries. */
interface Koffi {
  load(library: string): { func(prototype: string): NativeFunction }
  /** Address of the first byte. Buffers outside of Node's pool do not move. */
  address(bytes: Uint8Array): bigint
  errno(): number
}

/** Functions that return the number of an error, or 0. */
const CHECKED = {
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
  terminalPath: 'int ptsname_r(int master, void *path, size_t length)',
} as const

/** Functions that return -1 after an error. */
const CALLED = {
  socketpair: 'int socketpair(int domain, int type, int protocol, void *ends)',
  fcntl: 'int fcntl(int descriptor, int command, ...)',
  waitpid: 'int waitpid(int pid, void *status, int options)',
  unlockTerminal: 'int unlockpt(int master)',
  getModes: 'int tcgetattr(int terminal, void *modes)',
  setModes: 'int tcsetattr(int terminal, int when, void *modes)',
  ioctl: 'int ioctl(int descriptor, ulong request, ...)',
} as const

const failure = (call: string, errno: number): Error => {
  const code = getSystemErrorName(-errno)
  return Object.assign(new Error(`${call} ${code}`), { code, errno: -errno, syscall: call })
}

/** The same as a C string. */
export const cText = (value: string): Buffer => {
  if (value.includes('\0')) throw new TypeError('a word of a command and its environment cannot contain a NUL byte')
  return Buffer.from(`${value}\0`)
}

/** Functions of the C library that Node.js does not offer. Linux only. */
export class CLibrary {
  readonly #koffi: Koffi
  readonly #functions: ReadonlyMap<string, NativeFunction>

  /** Throws if the C library lacks a function. */
  constructor(koffi: Koffi) {
    const library = koffi.load('libc.so.6')
    this.#koffi = koffi
    this.#functions = new Map(Object.entries({ ...CHECKED, ...CALLED }).map(([name, prototype]) => [name, library.func(prototype)]))
  }

  /** Throws the error that the function returns. `title` replaces its name in the message. */
  check(name: keyof typeof CHECKED, values: readonly unknown[], title: string = name): void {
    const errno = this.#functions.get(name)!(...values)
    if (errno !== 0) throw failure(title, errno)
  }

  /** The result of the function. Throws if it fails. */
  call(name: keyof typeof CALLED, ...values: readonly unknown[]): number {
    const result = this.#functions.get(name)!(...values)
    if (result === -1) throw failure(name, this.#koffi.errno())
    return result
  }

  /** An array of C strings: addresses with a null at the end, and the bytes in the same block, so that all live equally long. */
  strings(values: readonly string[]): Buffer {
    const bytes = values.map(cText)
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
}

const ASSET = 'koffi.node'
export const KOFFI_PACKAGE = `@koromix/koffi-linux-${process.arch}`

/** Throws if the package is not installed or does not fit this machine. */
export const loadCLibrary = (): CLibrary => {
  const file = `${KOFFI_PACKAGE}/linux_${process.arch}/koffi.node`
  return new CLibrary((containedModule(ASSET) ?? createRequire(import.meta.url)(file)) as Koffi)
}
