import { monitorEventLoopDelay, performance } from 'node:perf_hooks'
import { type Metric, type Sample, counter, gauge } from './exposition.ts'
import { lostLogLines } from './log-output.ts'

/** How often the delay of the event loop is measured. */
const RESOLUTION_MS = 50
const NANOSECONDS = 1e9

/** What this process has used; times in seconds, memory in bytes. */
export interface ProcessUsage {
  readonly started_at: number
  readonly cpu: { readonly user: number; readonly system: number }
  readonly resident: number
  readonly heap: number
  /** How long its event loop was at work, … */
  readonly busy: number
  /** … and how late it was since this was last asked. */
  readonly delay: { readonly p99: number; readonly max: number }
  /** Log lines that were dropped because the log could not be written. */
  readonly lost_log_lines: number
}

let delays: ReturnType<typeof monitorEventLoopDelay> | null = null

/** Looks at the event loop's delay from the first call on: what nobody reads costs nothing. */
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

/** Of each process of a daemon, told apart by its label. */
export const usageMetrics = <Facts extends { readonly usage: ProcessUsage }>(process: string): Metric<Facts>[] => {
  const of =
    (pick: (usage: ProcessUsage) => number) =>
    ({ usage }: Facts): Sample[] => [{ labels: { process }, value: pick(usage) }]
  const cpu = ({ usage: { cpu } }: Facts): Sample[] => Object.entries(cpu).map(([mode, value]) => ({ labels: { process, mode }, value }))
  return [
    gauge(
      'x0x_process_start_time_seconds',
      'when the process began, as Unix time',
      of(({ started_at }) => started_at),
    ),
    counter('x0x_process_cpu_seconds_total', 'processor time of the process', cpu),
    gauge(
      'x0x_process_resident_memory_bytes',
      'memory of the process that is resident',
      of(({ resident }) => resident),
    ),
    gauge(
      'x0x_process_heap_bytes',
      'heap of the runtime that is in use',
      of(({ heap }) => heap),
    ),
    counter(
      'x0x_process_event_loop_busy_seconds_total',
      'time that the event loop was at work',
      of(({ busy }) => busy),
    ),
    gauge(
      'x0x_process_event_loop_delay_p99_seconds',
      'how late the event loop was, since the last scrape: 99th percentile',
      of(({ delay }) => delay.p99),
    ),
    gauge(
      'x0x_process_event_loop_delay_max_seconds',
      'how late the event loop was, since the last scrape: at most',
      of(({ delay }) => delay.max),
    ),
    counter(
      'x0x_process_log_lines_lost_total',
      'log lines that were dropped because the log could not be written',
      of(({ lost_log_lines: lost }) => lost),
    ),
  ]
}
