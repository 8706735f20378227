import type { Readable, Writable } from 'node:stream'

import type { Environment } from '../daemon/config.ts'
import type { InstanceChoice } from '../daemon/paths.ts'
import type { LocalApi } from '../daemon/local-api.ts'

/** A stream that may be a terminal. */
export type Output = Writable & { readonly isTTY?: boolean; readonly columns?: number }

/** What the process gives a command; tests give their own. */
export interface CliIo {
  readonly stdin: Readable & { readonly isTTY?: boolean }
  readonly stdout: Output
  readonly stderr: Output
  /** Calls back for SIGINT, SIGTERM and SIGHUP until the answer is called. */
  onSignal(listener: (signal: NodeJS.Signals) => void): () => void
  /**
   * Where the terminal is gone, ends this process by SIGHUP as any other program would end: at a normal exit Node
   * sets the terminal's modes and aborts because it cannot.
   */
  endWhereHungUp?(): void
}

/** Everything a command may use. */
export interface CliContext extends CliIo {
  readonly env: Environment
  readonly instance: InstanceChoice
  /** `--json`: one object on stdout, nothing else. */
  readonly json: boolean
  readonly api: LocalApi
}
