import { pino, stdTimeFunctions } from 'pino'

import type { LogLevel } from './log-level.ts'

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
}

/** The second lock: a field of one of these names never shows its value, whoever logs it. */
const SECRET_FIELDS = ['token', 'authorization', 'cookie', 'secret', 'key', 'private_key', 'privateKey', 'stdin', 'stdin_b64']
const NESTING = ['', '*.', '*.*.']

/** JSON lines with ISO 8601 time; written synchronously, so that the last line before a crash is there. */
export const createLogger = (init: LoggerInit): Logger =>
  pino(
    {
      name: init.name,
      level: init.level ?? 'warn',
      base: { name: init.name, pid: process.pid },
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: NESTING.flatMap((prefix) => SECRET_FIELDS.map((field) => prefix + field)), censor: '[redacted]' },
    },
    init.destination ?? pino.destination({ dest: 2, sync: true }),
  )

const nothing = (): void => undefined

/** For tests and for commands that have nobody to tell. */
export const silentLogger: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing, child: () => silentLogger }
