import { createHash } from 'node:crypto'
import { readFileSync, readlinkSync } from 'node:fs'

/** One process, also when it is gone: a pid alone is given to another some day, and each host has its own. `0` where something is not known. */
export interface ProcessIdentity {
  readonly pid: number
  /** Clock ticks between the start of the system and its own. */
  readonly started: string
  /** The PID namespace that the pid is one of. */
  readonly namespace: string
  /** The life of the kernel that it runs on, which containers share; 16 digits. */
  readonly boot: string
  /** The installation, which stays the same when the system is started again; 16 digits. */
  readonly machine: string
}

const UNKNOWN = '0'

/** What follows the name in `/proc/PID/stat`, which may hold anything (proc(5)): first the state, as the 20th the start. */
const statOf = (pid: number): readonly string[] | null => {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ')
  } catch {
    return null
  }
}

/** A `/proc` of another PID namespace has other processes under our pids. */
const procIsOurs = (): boolean => {
  try {
    return readlinkSync('/proc/self') === String(process.pid)
  } catch {
    return false
  }
}

const namespaceOf = (): string => {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? UNKNOWN
  } catch {
    return UNKNOWN
  }
}

/** Of a file with one id; machine-id(5) wants its own told to nobody. */
const digestOf = (path: string): string => {
  try {
    const text = readFileSync(path, 'latin1').trim()
    return /^[0-9a-f-]{32,36}$/.test(text) ? createHash('sha256').update(`x0x ${text}`).digest('hex').slice(0, 16) : UNKNOWN
  } catch {
    return UNKNOWN
  }
}

export const ownIdentity = (): ProcessIdentity => ({
  pid: process.pid,
  started: (procIsOurs() ? statOf(process.pid)?.[19] : undefined) ?? UNKNOWN,
  namespace: namespaceOf(),
  boot: digestOf('/proc/sys/kernel/random/boot_id'),
  machine: digestOf('/etc/machine-id'),
})

/** `unknown`: it is of another host or of another PID namespace, into which we do not see, or it hides from us. */
export const lifeOf = (other: ProcessIdentity): 'alive' | 'gone' | 'unknown' => {
  const us = ownIdentity()
  // On an installation that was started again nothing of before is left.
  if (other.boot !== us.boot) return other.machine === us.machine && us.machine !== UNKNOWN ? 'gone' : 'unknown'
  if (other.namespace !== us.namespace) return 'unknown'
  if (!exists(other.pid)) return 'gone'
  if (other.started === UNKNOWN && us.started === UNKNOWN) return 'alive'
  const stat = us.started === UNKNOWN ? null : statOf(other.pid)
  if (stat === null || other.started === UNKNOWN) return 'unknown'
  // A zombie does nothing any more.
  return stat[19] === other.started && stat[0] !== 'Z' ? 'alive' : 'gone'
}

const exists = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH'
  }
}
