import type { Peer } from './peer.ts'
import { NO_TERMINALS, type ConfigOptions } from './server.ts'

export type TransportName = 'stdio' | 'http' | 'websocket'

/** Transports that a requirement is limited to. */
export interface Only {
  readonly names: readonly TransportName[]
  readonly because: string
}

/** One requirement of REXD/1 with its test. */
export interface Requirement {
  readonly id: string
  readonly title: string
  /**
   * Names of the protocol parts that it covers: a method (`fs.read`), a field (`fs.read.path`, `session.open.limits.hard_timeout_ms`), a
   * member of an answer or an event (`fs.read:size`, `exec.exit:signal`), an event (`exec.exit`), or an error (`-32002`).
   */
  readonly names: readonly string[]
  /** Configuration of its server, which is shared with tests of the same configuration. Null means the common one. */
  readonly config: ConfigOptions | null
  /** Whether the server cannot be used by other tests afterwards. */
  readonly alone: boolean
  /** Null if it holds over every transport. */
  readonly only: Only | null
  /** Reason why it cannot be tested on this machine, or null. */
  readonly missing: string | null
  readonly test: (peer: Peer) => Promise<void>
}

export interface RequirementOptions {
  readonly config?: ConfigOptions
  readonly alone?: boolean
  readonly only?: Only
  /** Whether it needs a terminal. */
  readonly terminal?: boolean
}

/** `names` are separated by blanks or line ends. */
export const requirement = (
  id: string,
  title: string,
  names: string,
  test: (peer: Peer) => Promise<void>,
  { config, alone = false, only, terminal = false }: RequirementOptions = {},
): Requirement => ({
  id,
  title,
  names: names.split(/\s+/).filter(Boolean),
  config: config ?? null,
  alone,
  only: only ?? null,
  missing: terminal ? NO_TERMINALS : null,
  test,
})

export const STDIO: Only = { names: ['stdio'], because: 'nothing outlives standard streams, and one caller has them' }
export const WEB: Only = { names: ['http', 'websocket'], because: 'nothing outlives standard streams: there is nothing to come back to' }
export const ONE_STREAM: Only = { names: ['stdio', 'websocket'], because: 'what comes over several connections has no order among them' }

/** Time formats of the protocol: ISO 8601 in UTC, and with nanoseconds for files. */
export const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
export const FILE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$/

/**
 * Checks that an event has a cursor exactly if its session can be resumed, and removes it. A session without options can be resumed over
 * HTTP only.
 */
export const withoutCursor = (peer: Peer, params: object): Readonly<Record<string, unknown>> => {
  const { cursor, ...rest } = params as Record<string, unknown>
  const expected = peer.name === 'http'
  if (expected !== Number.isSafeInteger(cursor)) throw new Error(`over ${peer.name} the cursor is ${String(cursor)}`)
  return rest
}
