import { type StdioOptions, spawn } from 'node:child_process'
import { constants } from 'node:os'
import type { Duplex } from 'node:stream'
import type { TerminalSize } from '../executor-api/local.ts'
import { type PosixSpawn, type Spawn, posixSpawn } from './posix-spawn.ts'
import type { ExitStatus } from './signals.ts'

/** A started program, which leads a new session and process group. */
export interface Child {
  readonly pid: number
  /** Our ends by descriptor of the program. Null means it reads /dev/null. */
  readonly stdio: readonly (Duplex | null)[]
  /** Sets the size of a terminal that this process holds. Otherwise null. */
  readonly resize: ((size: TerminalSize) => void) | null
  /** Called once, in the turn in which the process is reaped. Its PID may be reused from then on. */
  onExit: (exit: ExitStatus) => void
}

export interface ChildInit extends Spawn {
  /** Starts as another user, which posix_spawn(3) cannot do. Then `terminal` is null. */
  readonly account: { readonly uid: number; readonly gid: number } | null
}

/** How often children are looked at without a signal. It also keeps this process alive until they end. */
const LOOK_MS = 1_000

/** Reaps the children that posix_spawn(3) started. The runtime reaps only its own. */
class Reaper {
  readonly #children = new Map<number, (exit: ExitStatus) => void>()
  readonly #posix: PosixSpawn
  #timer: NodeJS.Timeout | null = null

  constructor(posix: PosixSpawn) {
    this.#posix = posix
    process.on('SIGCHLD', () => this.#reap())
  }

  /** Calls `onExit` in the turn in which the child is reaped. */
  add(pid: number, onExit: (exit: ExitStatus) => void): void {
    this.#children.set(pid, onExit)
    this.#timer ??= setInterval(() => this.#reap(), LOOK_MS)
  }

  #reap(): void {
    for (const [pid, onExit] of this.#children) {
      const exit = this.#posix.reap(pid)
      if (exit === null) continue
      this.#children.delete(pid)
      onExit(exit)
    }
    if (this.#children.size > 0 || this.#timer === null) return
    clearInterval(this.#timer)
    this.#timer = null
  }
}

let reaper: Reaper | null = null

const unheard = (): void => undefined

const startNatively = (posix: PosixSpawn, init: ChildInit): Child => {
  reaper ??= new Reaper(posix)
  const { pid, stdio, terminal } = posix.start(init)
  const child: Child = { pid, stdio, resize: terminal && ((size) => terminal.resize(size)), onExit: unheard }
  reaper.add(pid, (exit) => {
    void terminal?.stream.finish()
    child.onExit(exit)
  })
  return child
}

/** By the runtime, which copies the page table of this process. The promise rejects with the error of the system. */
const startByRuntime = ({ file, argv, env, cwd, descriptors, stdin, account }: ChildInit): Child | Promise<Child> => {
  const [argv0, ...args] = argv
  const user = account === null ? {} : { uid: account.uid, gid: account.gid }
  const stdio: StdioOptions = Array.from({ length: descriptors }, (_, at) => (at === 0 && !stdin ? 'ignore' : 'pipe'))
  const started = spawn(file, args, { argv0, cwd, env, stdio, shell: false, detached: true, ...user })
  const { pid } = started
  const streams = started.stdio as readonly (Duplex | null)[]
  if (pid === undefined) {
    for (const stream of streams) stream?.destroy()
    return new Promise((_, reject) => started.once('error', reject))
  }
  // Later errors come only from a kill through the runtime's handle, which is never used.
  started.on('error', () => {})
  // At the exit of a child the runtime discards streams without listeners, and ours come later.
  for (const stream of streams.slice(1, 3)) stream?.on('readable', () => {})
  const child: Child = { pid, stdio: streams, resize: null, onExit: unheard }
  started.once('exit', (code, signal) => child.onExit({ code, signal: signal === null ? null : constants.signals[signal] }))
  return child
}

/** Why programs are started more slowly here than they could be, or null. On other systems the runtime does as well. */
export const slowStartProblem = (): string | null => {
  const posix = posixSpawn()
  return process.platform === 'linux' && 'problem' in posix ? posix.problem : null
}

/** Starts a program in this turn, without a shell, with only these descriptors. Throws or rejects with the error of the system. */
export const startChild = (init: ChildInit, posix = posixSpawn()): Child | Promise<Child> =>
  init.account !== null || 'problem' in posix ? startByRuntime(init) : startNatively(posix, init)
