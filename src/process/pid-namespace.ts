import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { constants } from 'node:os'
import { Duplex, type Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { errorText } from '../base/errors.ts'
import { birthOf, isLiving } from '../base/process-info.ts'
import type { Account } from '../policy/account.ts'
import { findExecutable } from '../policy/executable.ts'
import type { Confinement } from '../policy/mesh/confinement.ts'
import { findTool, namespaceArguments } from './launch-plan.ts'
import { TREE_END_MS, TREE_POLL_MS, descendantsOf } from './descendant-tracker.ts'
import { type Member, type ExitStatus, childrenOf, isChildOrIn, nameOf, send } from './signals.ts'

/** Characters kept of bwrap's error output. */
export const MAX_WRAPPER_TEXT = 4_096
/** How long bwrap may take to execute the program. Then the program counts as started. */
const NAMESPACE_START_MS = 5_000

/** Signals that end no process. */
const HARMLESS: readonly NodeJS.Signals[] = ['SIGCONT', 'SIGSTOP']
const { SIGKILL } = constants.signals
/** Shells and bwrap add the number of a signal to this in an exit status. */
const SIGNAL_BASE = 128

/** Process name of bwrap before it executes the program. */
const WRAPPER_NAME = 'bwrap'

/**
 * A PID namespace held by bwrap. Its init belongs to bwrap; when the init dies, the kernel kills all others. bwrap reports the init's PID
 * and, if the program was executed, its exit status.
 */
export class PidNamespace {
  readonly #wrapper: number
  readonly #statusClosed: Promise<void>
  /** Numbers of sent signals. */
  readonly #sent = new Set<number>()
  #text = ''
  #init: Member | null = null
  #status: number | null = null
  #reaped = false

  /** `status` is the other end of `--json-status-fd`. */
  constructor(init: { wrapper: number; status: Readable }) {
    const { wrapper, status } = init
    this.#wrapper = wrapper
    this.#statusClosed = new Promise((resolve) => {
      status.once('close', resolve).on('error', () => resolve())
    })
    status.on('data', (chunk: Buffer) => this.#readStatus(chunk.toString('latin1')))
  }

  /** Resolves when the program runs or bwrap has ended. */
  async begun(ended: Promise<unknown>): Promise<void> {
    const deadline = performance.now() + NAMESPACE_START_MS
    while (!this.#reaped && !this.#isExecuted() && performance.now() < deadline) await Promise.race([sleep(TREE_POLL_MS), ended])
  }

  /** PID of the init once bwrap has reported it. */
  get init(): number | null {
    return this.#init?.pid ?? null
  }

  /** bwrap has ended without reporting that it executed the program. */
  get isLost(): boolean {
    return this.#reaped && this.#status === null
  }

  /** Signals everything inside, but not bwrap, whose end would kill everything at once. */
  signal(signal: NodeJS.Signals): void {
    if (!HARMLESS.includes(signal)) this.#sent.add(constants.signals[signal])
    if (this.#init !== null && isLiving(this.#init)) for (const { pid } of descendantsOf(this.#init.pid)) send(pid, signal)
  }

  kill(): void {
    this.#sent.add(SIGKILL)
    if (!this.#reaped) send(-this.#wrapper, 'SIGKILL')
    this.#killInit()
  }

  /** Call it when bwrap was reaped: kills the rest and returns true when all are dead. */
  async end(): Promise<boolean> {
    this.#reaped = true
    await Promise.race([this.#statusClosed, sleep(TREE_END_MS, undefined, { ref: false })])
    this.#killInit()
    const deadline = performance.now() + TREE_END_MS
    while (this.#init !== null && isLiving(this.#init)) {
      if (performance.now() > deadline) return false
      await sleep(TREE_POLL_MS)
    }
    return true
  }

  /**
   * Derives the program's end from bwrap's. Returns null if the program was never executed. bwrap reports a signal as 128 + n like a shell. That
   * counts as a signal only if we sent it.
   */
  translate({ code, signal }: ExitStatus): ExitStatus | null {
    if (signal !== null) return { code: null, signal }
    // The init was killed, and with it the report of the program's end.
    if (this.#status === null) return this.#sent.has(SIGKILL) ? { code: null, signal: SIGKILL } : this.#initDied(code)
    const sent = this.#status - SIGNAL_BASE
    return this.#sent.has(sent) ? { code: null, signal: sent } : { code: this.#status, signal: null }
  }

  /** bwrap's own failures end with 1. */
  #initDied(code: number | null): ExitStatus | null {
    return code !== null && code > SIGNAL_BASE ? { code: null, signal: code - SIGNAL_BASE } : null
  }

  #killInit(): void {
    if (this.#init !== null && isLiving(this.#init)) send(this.#init.pid, 'SIGKILL')
  }

  /** The child of the init is bwrap until it executes the program. */
  #isExecuted(): boolean {
    const [program] = this.#init === null ? [] : childrenOf(this.#init.pid)
    const name = program === undefined ? null : nameOf(program)
    return name !== null && name !== WRAPPER_NAME
  }

  /** One JSON object per line: `child-pid` first, `exit-code` later. */
  #readStatus(text: string): void {
    this.#text = (this.#text + text).slice(-MAX_WRAPPER_TEXT)
    const pid = Number(/"child-pid": (\d+)[ ,}]/.exec(this.#text)?.[1])
    const namespace = /"pid-namespace": (\d+)[ ,}]/.exec(this.#text)?.[1]
    const born = this.#init === null && pid > 1 ? birthOf(pid) : undefined
    // A line that is read late may have a reused PID.
    if (born !== undefined && isChildOrIn(pid, this.#wrapper, namespace)) this.#init = { pid, born }
    const status = /"exit-code": (\d+)[ ,}]/.exec(this.#text)?.[1]
    if (status !== undefined) this.#status = Number(status)
  }
}

/** How long a probe of this machine may take. */
export const PROBE_MS = 5_000

/**
 * Runs `true` through bwrap and returns its complaint, or null on success. `feed`: what it reads from descriptor 3, on which it may also
 * write.
 */
export const bwrapComplaint = async (
  bwrap: string,
  words: readonly string[],
  { feed = null, account = null }: { readonly feed?: Buffer | null; readonly account?: Account | null },
): Promise<string | null> => {
  const program = findExecutable('true')
  if (program.kind !== 'found') return program.detail
  const user = account === null ? {} : { uid: account.uid, gid: account.gid }
  try {
    const child = spawn(bwrap, [...words, program.executable.path], {
      env: {},
      cwd: '/',
      stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
      detached: true,
      ...user,
    })
    let text = ''
    child.stderr?.on('data', (chunk: Buffer) => {
      text = (text + chunk.toString()).slice(0, MAX_WRAPPER_TEXT)
    })
    const other = child.stdio[3]
    if (other instanceof Duplex) other.on('error', () => {}).resume()
    if (other instanceof Duplex && feed !== null) other.end(feed)
    const [code, signal] = (await once(child, 'close', { signal: AbortSignal.timeout(PROBE_MS) }).catch((error: unknown) => {
      child.kill('SIGKILL')
      throw error
    })) as [number | null, string | null]
    return code === 0 ? null : text.trim() || `bwrap ended with ${signal ?? code}`
  } catch (error) {
    return errorText(error)
  }
}

/** Runs `true` in such a namespace, as this user. Returns why that fails. */
export const namespaceProblem = async (
  confinement: Pick<Confinement, 'no_network' | 'read_only'>,
  account: Account | null,
): Promise<string | null> => {
  const tool = findTool('bwrap')
  return 'problem' in tool ? tool.problem : bwrapComplaint(tool.path, namespaceArguments(confinement, '/'), { account })
}
