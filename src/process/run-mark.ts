import { readFileSync } from 'node:fs'
import { open, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { unlessAborted } from '../base/abort.ts'
import { attempt } from '../base/errors.ts'
import { statOf } from '../base/process-info.ts'
import type { TimeSlice, TimeSlicer } from '../base/time-slices.ts'
import { randomBytes } from '../identity/hash.ts'
import { type Member, isOurUsers } from './signals.ts'

/** Set for everything that a run starts, where nothing stronger than its process group holds it. */
export const MARK_VARIABLE = 'X0X_RUN'

const hex = (): string => Buffer.from(randomBytes(8)).toString('hex')

/** What the marks of one daemon begin with. */
export const newMarkPrefix = hex

/** A mark that no other run can guess: whoever carries one is ended with its run. */
export const newMark = (prefix: string): string => `${prefix}-${hex()}`

/** The values of the variable, of which a hand-made environment may have several. */
export const marksIn = (environment: string): string[] =>
  // Whole variables: a stranger's may have such a text for its value, as QUERY_STRING has what anybody asks a web server.
  environment
    .split('\0')
    .flatMap((variable) => (variable.startsWith(`${MARK_VARIABLE}=`) ? [variable.slice(MARK_VARIABLE.length + 1)] : []))

/** What the kernel says of the numbers that it has given to processes and threads. */
export interface PidNumbers {
  /** The number that was given last, in our PID namespace (proc_loadavg(5)). */
  readonly last: number
  /** Processes and threads that live. */
  readonly living: number
  /** Processes and threads that were started since boot (proc_stat(5)). */
  readonly forks: number
  /** Numbers are smaller (proc_sys_kernel(5)). */
  readonly max: number
}

/** Numbers below are not given again when the kernel begins anew (RESERVED_PIDS). */
const RESERVED = 300

const count = (text: string | undefined): number => {
  const number = Number(text)
  if (text === undefined || !Number.isSafeInteger(number)) throw new RangeError(`not a number: ${text}`)
  return number
}

/** Processes and threads that were started since boot; null where it is not told. */
export const readForks = (proc = '/proc'): number | null =>
  attempt(() => count(/^processes (\d+)$/m.exec(readFileSync(join(proc, 'stat'), 'latin1'))?.[1]))

/** Null where this system does not say it. */
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
 * True for the numbers that may have been given since a process got its own, when there had been `forks`. Numbers are
 * given one after the other, those in use left out: while there have been fewer than there are, all that is new lies
 * between that number and the last. (A start that is refused late uses a number up and is not counted; who plays on that
 * could as well take the mark out of its environment.)
 */
export const givenSince = (first: number, forks: number | null, now: PidNumbers | null): ((pid: number) => boolean) => {
  if (now === null || forks === null || now.forks - forks + now.living >= now.max - RESERVED) return () => true
  const { last } = now
  return first <= last ? (pid) => pid > first && pid <= last : (pid) => pid > first || pid <= last
}

/** How long one look through all processes of the host may take: enough for some 10,000 new ones. */
const MARK_LOOK_MS = 1_000
/** Environments that are read at the same time: one that hangs in the kernel holds one of the four threads that also write the journal. */
const MAX_READS = 2

/** Whose descendants are looked for. */
export interface Wanted {
  readonly mark: string
  /** The leader of the run, of which everything marked descends; itself it is left out. */
  readonly leader: Member
  /** `forksNow` from before the leader began; null: not known. */
  readonly forks: number | null
  /** Process group whose members are wanted too, marked or not; null: none. */
  readonly group: number | null
  /** True for those that need not be looked at again. */
  knows(member: Member): boolean
  /** Called for each as soon as it is found. */
  onFound(member: Member): void
}

export interface SearchPass {
  /** Everybody was looked at. Otherwise time was out, and another look goes on. */
  readonly whole: boolean
  /** One that began meanwhile, and may be of our user, does not show its environment: it may be of the run. */
  readonly hidden: boolean
}

interface Ask {
  readonly wanted: Wanted
  readonly isSince: (pid: number) => boolean
  hidden: boolean
}

interface Waiting {
  readonly wanted: Wanted
  readonly answer: (look: SearchPass | null) => void
}

/** How old a count may be that a run begins with: an older one is as true, and only makes its looks longer. */
const FORKS_KEPT_MS = 1_000
/** Most environments are shorter. */
const READ_SIZE = 16 * 1024

/**
 * Looks through all processes of this host for the marks of runs (proc_pid_environ(5)). Runs that ask at the same time
 * share a look; looks are divided into turns of the event loop, and end in time. Reading the
 * memory of another process may block in the kernel: it is done by threads of the pool, at most MAX_READS at a time.
 */
export class MarkSearch {
  readonly #proc: string
  readonly #sharing: TimeSlicer
  readonly #lookMs: number
  /** Processes whose environment is being read; one that does not come stays here, and is not waited for again. */
  readonly #reading = new Set<string>()
  #waiting: Waiting[] = []
  #looking = false
  #forks: { readonly count: number | null; readonly at: number } | null = null

  /** `proc`: another place than /proc, for a test; `lookMs`: how long a look may take. */
  constructor(deps: { sharing: TimeSlicer }, init: { proc?: string; lookMs?: number } = {}) {
    this.#sharing = deps.sharing
    this.#proc = init.proc ?? '/proc'
    this.#lookMs = init.lookMs ?? MARK_LOOK_MS
  }

  /** How many processes there have been, for whoever begins now. */
  get forksNow(): number | null {
    const now = performance.now()
    if (this.#forks === null || now - this.#forks.at >= FORKS_KEPT_MS) this.#forks = { count: readForks(this.#proc), at: now }
    return this.#forks.count
  }

  /** For work that is done beside a look, within the same turns. */
  share(signal: AbortSignal): TimeSlice {
    return this.#sharing.share(signal)
  }

  /** Every living process with this mark, however it left its group and whoever its parent is. Null where this system shows no processes. */
  async find(wanted: Wanted): Promise<SearchPass | null> {
    return new Promise((answer) => {
      this.#waiting.push({ wanted, answer })
      if (!this.#looking) void this.#work()
    })
  }

  async #work(): Promise<void> {
    this.#looking = true
    while (this.#waiting.length > 0) {
      // Asks of this turn share the look.
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
    const asks = all.map((wanted): Ask => ({ wanted, isSince: givenSince(wanted.leader.pid, wanted.forks, numbers), hidden: false }))
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
    return asks.map(({ hidden }) => ({ whole: visits.every(({ status }) => status === 'fulfilled'), hidden }))
  }

  /** One process, for all who may want it; null: nothing can be read. Throws where time is out. */
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
    else {
      const marks = marksIn(environment)
      for (const { wanted } of others) if (marks.includes(wanted.mark)) wanted.onFound(member)
    }
  }

  /** Empty where the process is not our user's, or is gone; null: the kernel does not show it, or does not answer. Throws the signal's reason. */
  async #environmentOf({ pid, born }: Member, deadline: AbortSignal | null): Promise<string | null> {
    const name = `${pid}-${born}`
    if (deadline === null || this.#reading.has(name)) return process.getuid?.() === 0 || isOurUsers(pid, this.#proc) ? null : ''
    this.#reading.add(name)
    const reading = readWhole(join(this.#proc, String(pid), 'environ'))
      .catch((error: NodeJS.ErrnoException) => (error.code === 'EACCES' && isOurUsers(pid, this.#proc) ? null : ''))
      .finally(() => this.#reading.delete(name))
    return unlessAborted(reading, deadline)
  }
}

/** In few reads, because each waits for a thread of the pool; so would the close, which is not waited for. */
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
