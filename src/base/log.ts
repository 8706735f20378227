import { pino, stdTimeFunctions } from 'pino'
import { type LogLevel, leadsToJournald, withPriority } from './log-level.ts'
import { LogOutput, standardErrorLog } from './log-output.ts'
import { visibleJson } from './visible-text.ts'

interface LogMethod {
  (fields: object, message: string): void
  (message: string): void
}

/** What our code may say. Ids go through `shortId` first; secrets do not go in at all. */
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
  /** Lines are for systemd's journal. Default: where standard error leads there. */
  readonly journald?: boolean
}

/** The second lock: a field of one of these names never shows its value, whoever logs it. */
const SECRET_FIELDS = ['token', 'authorization', 'cookie', 'secret', 'key', 'private_key', 'privateKey', 'stdin', 'stdin_b64']
const NESTING = ['', '*.', '*.*.']

/** What pino writes first. */
const LEVEL = /^\{"level":"(\w+)"/

/**
 * JSON lines with ISO 8601 time, by default on standard error (see `LogOutput`). In systemd's journal, which has the time and
 * the process of each line, a priority stands in front in their place.
 */
export const createLogger = (init: LoggerInit): Logger => {
  const { name, level = 'warn', destination = standardErrorLog() } = init
  const journald = init.journald ?? (init.destination === undefined && leadsToJournald())
  // A field may hold foreign text: no reader of lines may cut at a character of it.
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

/** For tests and for commands that have nobody to tell. */
export const silentLogger: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing, child: () => silentLogger }
