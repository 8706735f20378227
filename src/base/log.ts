import { pino, stdTimeFunctions } from 'pino'
import { type LogLevel, leadsToJournald, withPriority } from './log-level.ts'
import { LogOutput, standardErrorLog } from './log-output.ts'
import { visibleJson } from './visible-text.ts'

interface LogMethod {
  (fields: object, message: string): void
  (message: string): void
}

/** A log. Shorten IDs with `shortId` before you log them, and never log a secret. */
export interface Logger {
  readonly debug: LogMethod
  readonly info: LogMethod
  readonly warn: LogMethod
  readonly error: LogMethod
  child(bindings: Record<string, unknown>): Logger
}

export interface LoggerInit {
  readonly name: string
  /** Default `warn`: a healthy daemon is quiet. */
  readonly level?: LogLevel
  /** Default standard error. One JSON object and a line feed per call. */
  readonly destination?: { write(line: string): void }
  /** Format lines for systemd's journal. Default: whether standard error leads there. */
  readonly journald?: boolean
}

/** A second protection against logged secrets: values of fields with these names are never shown. */
const SECRET_FIELDS = ['token', 'authorization', 'cookie', 'secret', 'key', 'private_key', 'privateKey', 'stdin', 'stdin_b64']
const NESTING = ['', '*.', '*.*.']

/** The start of every line that pino writes. */
const LEVEL = /^\{"level":"(\w+)"/

/**
 * Logs JSON lines with ISO 8601 time, by default to standard error (see `LogOutput`). For systemd's journal, which records time and
 * process itself, a priority replaces them.
 */
export const createLogger = (init: LoggerInit): Logger => {
  const { name, level = 'warn', destination = standardErrorLog() } = init
  const journald = init.journald ?? (init.destination === undefined && leadsToJournald())
  // A field may hold text of other machines, and no character of it may end the line.
  const output = {
    write: (line: string) => destination.write(visibleJson(journald ? withPriority(LEVEL.exec(line)?.[1], line) : line)),
  }
  const logger = pino(
    {
      name,
      level,
      base: { name, pid: process.pid },
      timestamp: journald ? false : stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: NESTING.flatMap((prefix) => SECRET_FIELDS.map((field) => prefix + field)), censor: '[redacted]' },
    },
    output,
  )
  if (destination instanceof LogOutput)
    destination.onRecovered = (lost) => logger.error({ lost }, 'log lines were lost because the log could not be written')
  return logger
}

const nothing = (): void => undefined

/** For tests, and for commands without a log. */
export const silentLogger: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing, child: () => silentLogger }
