import { fstatSync } from 'node:fs'
import type { Environment } from './runtime.ts'

/** How much a daemon says, from all to what it cannot go on with. */
export const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** The priorities of syslog (RFC 5424 §6.2.1) that sd-daemon(3) reads in front of a line. */
const PRIORITIES: Readonly<Record<LogLevel, number>> = { error: 3, warn: 4, info: 6, debug: 7 }

/** Standard error leads to systemd's journal: it says so with the device and inode of what it gave us, which are others behind a pipe. */
export const leadsToJournald = (env: Environment = process.env): boolean => {
  const said = env['JOURNAL_STREAM']
  if (said === undefined) return false
  const { dev, ino } = fstatSync(2, { bigint: true })
  return said === `${dev}:${ino}`
}

const isLevel = (level: unknown): level is LogLevel => (LOG_LEVELS as readonly unknown[]).includes(level)

/** A line of our log as systemd's journal reads it: what has no level of ours counts as an error. */
export const withPriority = (level: unknown, line: string): string => `<${isLevel(level) ? PRIORITIES[level] : PRIORITIES.error}>${line}`
