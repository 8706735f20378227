import { fstatSync } from 'node:fs'
import type { Environment } from './runtime.ts'

/** Log levels, from the most to the least detailed. */
export const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** The syslog priorities (RFC 5424 §6.2.1) that sd-daemon(3) reads at the start of a line. */
const PRIORITIES: Readonly<Record<LogLevel, number>> = { error: 3, warn: 4, info: 6, debug: 7 }

/** Whether standard error leads to systemd's journal. systemd gives the device and inode in JOURNAL_STREAM. Behind a pipe they differ. */
export const leadsToJournald = (env: Environment = process.env): boolean => {
  const said = env['JOURNAL_STREAM']
  if (said === undefined) return false
  const { dev, ino } = fstatSync(2, { bigint: true })
  return said === `${dev}:${ino}`
}

const isLevel = (level: unknown): level is LogLevel => (LOG_LEVELS as readonly unknown[]).includes(level)

/** A log line with its priority for systemd's journal. An unknown level counts as an error. */
export const withPriority = (level: unknown, line: string): string => `<${isLevel(level) ? PRIORITIES[level] : PRIORITIES.error}>${line}`
