import type { Readable, Writable } from 'node:stream'

import type { Environment } from '../../base/environment.ts'
import { LocalApi } from '../../local-api/local-api.ts'
import { checkInstanceName, type InstanceChoice } from '../../local-api/paths.ts'

/** A stream that may be a terminal. */
export type Output = Writable & { readonly isTTY?: boolean; readonly columns?: number }

/** What the process gives a command; tests give their own. */
export interface CliIo {
  /** Opened when first asked for. */
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

/** The options that every command takes, where they were given. */
export interface GlobalOptions {
  readonly name?: string
  readonly dataDir?: string
  readonly api?: string
  readonly json?: boolean
}

/** Throws `bad_config` for a name that can be no daemon's. */
export const contextOf = (io: CliIo, env: Environment, options: GlobalOptions): CliContext => {
  const name = options.name ?? env['X0X_NAME'] ?? null
  if (name !== null) checkInstanceName(name, options.name === undefined ? 'X0X_NAME' : '--name')
  const instance = { name, dataDir: options.dataDir ?? env['X0X_DATA_DIR'] ?? null }
  const api = new LocalApi({ instance, url: options.api ?? env['X0X_API'] ?? null, env })
  const { stdout, stderr } = io
  return {
    get stdin() {
      return io.stdin
    },
    stdout,
    stderr,
    onSignal: (listener) => io.onSignal(listener),
    env,
    instance,
    json: options.json === true,
    api,
  }
}
