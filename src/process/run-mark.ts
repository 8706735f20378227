import { readFileSync } from 'node:fs'
import { open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { unlessAborted } from '../base/abort.ts'
import { attempt } from '../base/errors.ts'
import { statOf } from '../base/process-stat.ts'
import type { TimeSlice, TimeSlicer } from '../base/time-slices.ts'
import { randomBytes } from '../identity/hash.ts'
import { type Member, isOurUsers } from './signals.ts'

/** Environment variable of every process of a run that only its process group holds. */
export const MARK_VARIABLE = 'X0X_RUN'

const hex = (): string => Buffer.from(randomBytes(8)).toString('hex')

/** Creates the common prefix of one daemon's marks. */
export const newMarkPrefix = hex

/** Creates an unguessable mark. Every process that carries it is ended with the run. */
export const newMark = (prefix: string): string => `${prefix}-${hex()}`

/** Values of the variable. A hand-made environment may have several. */
export const marksIn = (environment: string): string[] =>
  // Compares whole variables, because a value of another one may contain such text, like QUERY_STRING in a web server.
  environment
    .split('\0')
    .flatMap((variable) => (variable.startsWith(`${MARK_VARIABLE}=`) ? [variable.slice(MARK_VARIABLE.length + 1)] : []))

/** Counters of the kernel for process and thread numbers. */
export interface PidNumbers {
  /** Last number given in our PID namespace (proc_loadavg(5)). */
  readonly last: number
  /** Living processes and threads. */
  readonly living: number
  /** Processes and threads started since boot (proc_stat(5)). */
  readonly forks: number
  /** Upper bound of numbers (proc_sys_kernel(5)). */
  readonly max: number
}

/** Numbers below are not reused when the kernel wraps around (RESERVED_PIDS). */
const RESERVED = 300

const count = (text: string | undefined): number => {
  const number = Number(text)
  if (text === undefined || !Number.isSafeInteger(number)) throw new RangeError(`not a number: ${text}`)
  return number
}

/** Processes and threads started since boot, or null if the system does not report it. */
export const readForks = (proc = '/proc'): number | null =>
  attempt(() => count(/^processes (\d+)$/m.exec(readFileSync(join(proc, 'stat'), 'latin1'))?.[1]))

/** Null if the system does not report it. */
export const readPidNumbers = (proc = '/proc'): PidNumbers | null => {
  const forks = readForks(proc)
  if (forks === null) return null
  return attempt(() => {
    const [, , , entities, last] = readFileSync(join(proc, 'loadavg'), 'latin1').trim().split(' ')
    const max = readFileSync(join(proc, 'sys/kernel/pid_max'), 'latin1').trim()
    return { last: count(last), living: count(entities?.split('/')[1]), forks, max: count(max) }
  })
}

/**
 * Returns a filter for numbers that may have been given after `first`, when `forks` processes had been started. The kernel gives numbers in
 * ascending order and skips used ones. So until it has wrapped around, all new ones lie between `first` and the last. (A start that fails
 * late uses a number without being counted. A program that exploits this could also remove its mark.)
 */
export const givenSince = (first: number, forks: number | null, now: PidNumbers | null): ((pid: number) => boolean) => {
  if (now === null || forks === null || now.forks - forks + now.living >= now.max - RESERVED) return () => true
  const { last } = now
  return first <= last ? (pid) => pid > first && pid <= last : (pid) => pid > first || pid <= last
}

/** Time limit of one search of all processes, enough for about 10,000 new ones. */
const MARK_LOOK_MS = 1_000
/** Environments read at once. A blocked read holds one of the four pool threads, which also write the audit log. */
const MAX_READS = 2

/** A search for the descendants of one run. */
export interface Wanted {
  readonly mark: string
  /** Leader of the run, ancestor of everything marked. It is left out. */
  readonly leader: Member
  /** `forksNow` before the leader started, or null if not known. */
  readonly forks: number | null
  /** Process group whose members are also wanted, or null. */
  readonly group: number | null
  /** True for a process that need not be inspected again. */
  knows(member: Member): boolean
  /** Called at once for each found process. */
  onFound(member: Member): void
}

export interface SearchPass {
  /** All processes were inspected. Otherwise the time was up or one was inside execve(2), and another search continues. */
  readonly whole: boolean
  /** True if a new process, possibly of our user, hides its environment, so that it may belong to the run. */
  readonly hidden: boolean
}

interface Ask {
  readonly wanted: Wanted
  readonly isSince: (pid: number) => boolean
  hidden: boolean
  /** A process was executing a program and had no environment at this moment. */
  changing: boolean
}

interface Waiting {
  readonly wanted: Wanted
  readonly answer: (look: SearchPass | null) => void
}

/** Maximum age of a cached count. An older one is also correct, but makes searches longer. */
const FORKS_KEPT_MS = 1_000
/** Longer than most environments. */
const READ_SIZE = 16 * 1024

/**
 * Searches all processes of this machine for marks of runs (proc_pid_environ(5)). Concurrent requests share a search, which yields to the
 * event loop and ends in time. Reading the memory of a process may block in the kernel, so pool threads do it, at most MAX_READS at a time.
 */
export class MarkSearch {
  readonly #proc: string
  readonly #sharing: TimeSlicer
  readonly #lookMs: number
  /** Processes whose environment is being read. A blocked one stays here and is not read again. */
  readonly #reading = new Set<string>()
  #waiting: Waiting[] = []
  #looking = false
  #forks: { readonly count: number | null; readonly at: number } | null = null

  /** `proc` replaces /proc in tests. `lookMs` is the time limit of a search. */
  constructor(deps: { sharing: TimeSlicer }, init: { proc?: string; lookMs?: number } = {}) {
    this.#sharing = deps.sharing
    this.#proc = init.proc ?? '/proc'
    this.#lookMs = init.lookMs ?? MARK_LOOK_MS
  }

  /** Number of processes started since boot, cached for a moment. */
  get forksNow(): number | null {
    const now = performance.now()
    if (this.#forks === null || now - this.#forks.at >= FORKS_KEPT_MS) this.#forks = { count: readForks(this.#proc), at: now }
    return this.#forks.count
  }

  /** Time slice for other work during a search. */
  share(signal: AbortSignal): TimeSlice {
    return this.#sharing.share(signal)
  }

  /** Finds every living process with this mark, in any group and with any parent. Null if the system shows no processes. */
  async find(wanted: Wanted): Promise<SearchPass | null> {
    return new Promise((answer) => {
      this.#waiting.push({ wanted, answer })
      if (!this.#looking) void this.#work()
    })
  }

  async #work(): Promise<void> {
    this.#looking = true
    while (this.#waiting.length > 0) {
      // Requests of the same turn share the search.
      await Promise.resolve()
      const served = this.#waiting
      this.#waiting = []
      const looks = await this.#poll(served.map(({ wanted }) => wanted))
      for (const [index, { answer }] of served.entries()) answer(looks?.[index] ?? null)
    }
    this.#looking = false
  }

  async #poll(all: readonly Wanted[]): Promise<SearchPass[] | null> {
    const names = await readdir(this.#proc).catch(() => null)
    if (names === null) return null
    const numbers = readPidNumbers(this.#proc)
    const asks = all.map((wanted): Ask => ({
      wanted,
      isSince: givenSince(wanted.leader.pid, wanted.forks, numbers),
      hidden: false,
      changing: false,
    }))
    const deadline = AbortSignal.timeout(this.#lookMs)
    const share = this.share(deadline)
    const free = MAX_READS - this.#reading.size
    const rest = names[Symbol.iterator]()
    const visitRest = async (): Promise<void> => {
      for (const name of rest) {
        if (share.shouldYield) await share.yieldTurn()
        await this.#visit(Number(name), asks, free > 0 ? deadline : null)
      }
    }
    const visits = await Promise.allSettled(Array.from({ length: Math.max(free, 1) }, visitRest))
    const inTime = visits.every(({ status }) => status === 'fulfilled')
    return asks.map(({ hidden, changing }) => ({ whole: inTime && !changing, hidden }))
  }

  /** Inspects one process for all searches. A null deadline means that reading is impossible now. Throws when the time is up. */
  async #visit(pid: number, all: readonly Ask[], deadline: AbortSignal | null): Promise<void> {
    const near = Number.isSafeInteger(pid) ? all.filter(({ isSince, wanted }) => wanted.leader.pid !== pid && isSince(pid)) : []
    if (near.length === 0) return
    const stat = statOf(pid, this.#proc)
    const [state, born] = [stat[0], stat[19]]
    if (born === undefined || state === 'Z' || state === 'X') return
    const member = { pid, born }
    const asks = near.filter(({ wanted }) => BigInt(born) >= BigInt(wanted.leader.born) && !wanted.knows(member))
    if (asks.length === 0) return
    const isInGroup = ({ wanted }: Ask): boolean => wanted.group === Number(stat[2])
    for (const { wanted } of asks.filter(isInGroup)) wanted.onFound(member)
    const others = asks.filter((ask) => !isInGroup(ask))
    if (others.length === 0) return
    const environment = await this.#environmentOf(member, deadline)
    if (environment === null) for (const ask of others) ask.hidden = true
    else if (environment === '' && this.#mayRead(pid) && isExecuting(pid, this.#proc)) for (const ask of others) ask.changing = true
    else {
      const marks = marksIn(environment)
      for (const { wanted } of others) if (marks.includes(wanted.mark)) wanted.onFound(member)
    }
  }

  #mayRead(pid: number): boolean {
    return process.getuid?.() === 0 || isOurUsers(pid, this.#proc)
  }

  /**
   * Empty if the process is gone or of another user, or null if the kernel hides the environment or does not answer. Throws the signal's
   * reason.
   */
  async #environmentOf({ pid, born }: Member, deadline: AbortSignal | null): Promise<string | null> {
    const name = `${pid}-${born}`
    if (deadline === null || this.#reading.has(name)) return this.#mayRead(pid) ? null : ''
    this.#reading.add(name)
    const reading = readWhole(join(this.#proc, String(pid), 'environ'))
      .catch((error: NodeJS.ErrnoException) => (error.code === 'EACCES' && isOurUsers(pid, this.#proc) ? null : ''))
      .finally(() => this.#reading.delete(name))
    return unlessAborted(reading, deadline)
  }
}

/** Flag of a kernel thread (PF_KTHREAD), which has no environment. */
const KERNEL_THREAD = 0x20_00_00

/** Inside execve(2), a process has a new memory whose environment the kernel has not placed yet: `env_end` is 0 (proc_pid_stat(5)). */
const isExecuting = (pid: number, proc: string): boolean => {
  const stat = statOf(pid, proc)
  return stat[48] === '0' && stat[0] !== 'Z' && stat[0] !== 'X' && (Number(stat[6]) & KERNEL_THREAD) === 0
}

/** Few reads, because each waits for a pool thread. The close is not awaited. */
const readWhole = async (path: string): Promise<string> => {
  const file = await open(path)
  try {
    const parts: Buffer[] = []
    for (;;) {
      const { buffer, bytesRead } = await file.read(Buffer.allocUnsafe(READ_SIZE))
      parts.push(buffer.subarray(0, bytesRead))
      if (bytesRead < READ_SIZE) return Buffer.concat(parts).toString('latin1')
    }
  } finally {
    void file.close()
  }
}
