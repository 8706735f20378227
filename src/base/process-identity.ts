import { createHash } from 'node:crypto'
import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import { attempt, errnoOf } from './errors.ts'
import { birthOf, bootId, isLiving } from './proc-stat.ts'

/** Names one process for good, also when it has ended: a pid alone is given again, and every host has it. `0` stands for what is not known. */
export interface ProcessIdentity {
  readonly pid: number
  /** Clock ticks between the start of the system and its own. */
  readonly started: string
  /** The PID namespace that the pid is one of. */
  readonly namespace: string
  /** The boot of the kernel that it runs on, which containers share; where there is no boot id, the host's name. 16 hex digits. */
  readonly boot: string
  /** The installation, which stays the same over restarts of the system. 16 hex digits. */
  readonly machine: string
}

const UNKNOWN = '0'

/** To stand in a file, or with a hyphen in the name of one. */
export const identityText = ({ pid, started, namespace, boot, machine }: ProcessIdentity, between: ' ' | '-'): string =>
  [pid, started, namespace, boot, machine].join(between)

/** Null: that is no such text. */
export const identityFrom = (text: string): ProcessIdentity | null => {
  const [, pid, started = '', namespace = '', boot = '', machine = ''] =
    /^([1-9]\d{0,9})[ -](\d+)[ -](\d+)[ -]([0-9a-f]+)[ -]([0-9a-f]+)$/.exec(text) ?? []
  return pid === undefined ? null : { pid: Number(pid), started, namespace, boot, machine }
}

/** A `/proc` of another PID namespace has other processes under our pids. */
const procIsOurs = (): boolean => attempt(() => readlinkSync('/proc/self')) === String(process.pid)

const namespaceOf = (): string => /\d+/.exec(attempt(() => readlinkSync('/proc/self/ns/pid')) ?? '')?.[0] ?? UNKNOWN

const machineId = (): string | null => attempt(() => readFileSync('/etc/machine-id', 'latin1').trim())

const digestOf = (text: string): string => createHash('sha256').update(`x0x ${text}`).digest('hex').slice(0, 16)

/** A digest, because machine-id(5) is confidential. While the file is empty or says `uninitialized` the id is unknown. */
const digestOfId = (id: string | null): string => (id !== null && /^[0-9a-f-]{32,36}$/.test(id) ? digestOf(id) : UNKNOWN)

export const ownIdentity = (): ProcessIdentity => identityOf(process.pid)

/** Of a process in our own PID namespace. */
export const identityOf = (pid: number): ProcessIdentity => ({
  pid,
  started: (procIsOurs() ? birthOf(pid) : undefined) ?? UNKNOWN,
  namespace: namespaceOf(),
  boot: digestOf(bootId() ?? hostname()),
  machine: digestOfId(machineId()),
})

/** `unknown`: it is of another host or of another PID namespace, into which we do not see, or it hides from us. */
export const lifeOf = (other: ProcessIdentity): 'alive' | 'gone' | 'unknown' => {
  const us = ownIdentity()
  // No process outlives a restart of the installation that it ran on.
  if (other.boot !== us.boot) return other.machine === us.machine && us.machine !== UNKNOWN ? 'gone' : 'unknown'
  if (other.namespace !== us.namespace) return 'unknown'
  if (!exists(other.pid)) return 'gone'
  if (other.started === UNKNOWN && us.started === UNKNOWN) return 'alive'
  if (us.started === UNKNOWN || other.started === UNKNOWN || birthOf(other.pid) === undefined) return 'unknown'
  return isLiving({ pid: other.pid, born: other.started }) ? 'alive' : 'gone'
}

const exists = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return errnoOf(error) !== 'ESRCH'
  }
}
