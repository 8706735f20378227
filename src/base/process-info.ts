import { createHash } from 'node:crypto'
import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import { monitorEventLoopDelay, performance } from 'node:perf_hooks'
import { attempt, errnoOf } from './errors.ts'
import { lostLogLines } from './log-output.ts'
import { type Metric, type Sample, counter, gauge } from './metrics.ts'
import { statOf } from './process-stat.ts'

/** When a process started, in clock ticks since boot. Undefined if it is gone or the system has no /proc. */
export const birthOf = (pid: number): string | undefined => statOf(pid)[19]

/**
 * Whether the process that started at that moment still lives. A zombie does not. A process whose first thread has ended counts as living
 * while other threads of it do, because they hold its files and sockets.
 */
export const isLiving = ({ pid, born }: { readonly pid: number; readonly born: string }): boolean => {
  const stat = statOf(pid)
  const [state, threads] = [stat[0], Number(stat[17])]
  return stat[19] === born && ((state !== 'Z' && state !== 'X') || threads > 1)
}

/** An ID that differs at each boot (random(4)), or null without /proc. */
export const bootId = (): string | null => attempt(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim())

/** Identifies a process forever. A pid alone does not, because it is reused and every host has it. `0` means an unknown value. */
export interface ProcessIdentity {
  readonly pid: number
  /** Clock ticks from the boot of the system to the start of the process. */
  readonly started: string
  /** The PID namespace that the pid belongs to. */
  readonly namespace: string
  /** The boot of its kernel, which containers share, or the host name without a boot ID. 16 hex digits. */
  readonly boot: string
  /** The installation of the system, which is the same after a reboot. 16 hex digits. */
  readonly machine: string
}

const UNKNOWN = '0'

/** Text for a file, or with a hyphen for a file name. */
export const identityText = ({ pid, started, namespace, boot, machine }: ProcessIdentity, between: ' ' | '-'): string =>
  [pid, started, namespace, boot, machine].join(between)

export const identityFrom = (text: string): ProcessIdentity | null => {
  const [, pid, started = '', namespace = '', boot = '', machine = ''] =
    /^([1-9]\d{0,9})[ -](\d+)[ -](\d+)[ -]([0-9a-f]+)[ -]([0-9a-f]+)$/.exec(text) ?? []
  return pid === undefined ? null : { pid: Number(pid), started, namespace, boot, machine }
}

/** A `/proc` of another PID namespace shows other processes under these pids. */
const procIsOurs = (): boolean => attempt(() => readlinkSync('/proc/self')) === String(process.pid)

const namespaceOf = (): string => /\d+/.exec(attempt(() => readlinkSync('/proc/self/ns/pid')) ?? '')?.[0] ?? UNKNOWN

const machineId = (): string | null => attempt(() => readFileSync('/etc/machine-id', 'latin1').trim())

const digestOf = (text: string): string => createHash('sha256').update(`x0x ${text}`).digest('hex').slice(0, 16)

/** A digest, because machine-id(5) is confidential. The ID is unknown while the file is empty or says `uninitialized`. */
const digestOfId = (id: string | null): string => (id !== null && /^[0-9a-f-]{32,36}$/.test(id) ? digestOf(id) : UNKNOWN)

export const ownIdentity = (): ProcessIdentity => identityOf(process.pid)

export const identityOf = (pid: number): ProcessIdentity => ({
  pid,
  started: (procIsOurs() ? birthOf(pid) : undefined) ?? UNKNOWN,
  namespace: namespaceOf(),
  boot: digestOf(bootId() ?? hostname()),
  machine: digestOfId(machineId()),
})

/** `unknown` means that the process is on another host, in another PID namespace, or hidden from this user. */
export const processState = (other: ProcessIdentity): 'alive' | 'gone' | 'unknown' => {
  const us = ownIdentity()
  // No process outlives a reboot of its installation.
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

/** How often the delay of the event loop is measured. */
const RESOLUTION_MS = 50
const NANOSECONDS = 1e9

/** Resources that this process has used. Times are in seconds, memory in bytes. */
export interface ProcessUsage {
  readonly started_at: number
  readonly cpu: { readonly user: number; readonly system: number }
  readonly resident: number
  readonly heap: number
  /** Time that the event loop was busy. */
  readonly busy: number
  /** Delay of the event loop since the last call. */
  readonly delay: { readonly p99: number; readonly max: number }
  /** Log lines that were dropped because the log could not be written. */
  readonly lost_log_lines: number
}

let delays: ReturnType<typeof monitorEventLoopDelay> | null = null

/** Starts to measure the event-loop delay at the first call, because measuring has a cost. */
export const processUsage = (): ProcessUsage => {
  const { user, system } = process.cpuUsage()
  const { rss, heapUsed } = process.memoryUsage()
  const late = (nanoseconds: number): number => Math.max(0, nanoseconds / NANOSECONDS - RESOLUTION_MS / 1000)
  const delay = delays === null || delays.count === 0 ? { p99: 0, max: 0 } : { p99: late(delays.percentile(99)), max: late(delays.max) }
  delays ??= monitorEventLoopDelay({ resolution: RESOLUTION_MS })
  delays.reset()
  delays.enable()
  return {
    started_at: performance.timeOrigin / 1000,
    cpu: { user: user / 1e6, system: system / 1e6 },
    resident: rss,
    heap: heapUsed,
    busy: performance.eventLoopUtilization().active / 1000,
    delay,
    lost_log_lines: lostLogLines(),
  }
}

/** Usage metrics of each process of a daemon, under a label. */
export const usageMetrics = <Facts extends { readonly usage: ProcessUsage }>(process: string): Metric<Facts>[] => {
  const of =
    (pick: (usage: ProcessUsage) => number) =>
    ({ usage }: Facts): Sample[] => [{ labels: { process }, value: pick(usage) }]
  const cpu = ({ usage: { cpu } }: Facts): Sample[] => Object.entries(cpu).map(([mode, value]) => ({ labels: { process, mode }, value }))
  return [
    gauge(
      'x0x_process_start_time_seconds',
      'Start, in Unix time',
      of(({ started_at }) => started_at),
    ),
    counter('x0x_process_cpu_seconds_total', 'CPU time, by mode', cpu),
    gauge(
      'x0x_process_resident_memory_bytes',
      'Resident memory',
      of(({ resident }) => resident),
    ),
    gauge(
      'x0x_process_heap_bytes',
      'Used heap',
      of(({ heap }) => heap),
    ),
    counter(
      'x0x_process_event_loop_busy_seconds_total',
      'Busy time of the event loop',
      of(({ busy }) => busy),
    ),
    gauge(
      'x0x_process_event_loop_delay_p99_seconds',
      'Event loop delay, 99th percentile',
      of(({ delay }) => delay.p99),
    ),
    gauge(
      'x0x_process_event_loop_delay_max_seconds',
      'Longest event loop delay',
      of(({ delay }) => delay.max),
    ),
    counter(
      'x0x_process_log_lines_lost_total',
      'Dropped log lines',
      of(({ lost_log_lines: lost }) => lost),
    ),
  ]
}
