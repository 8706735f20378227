import type { Peer } from './peer.ts'
import { NO_TERMINALS, type ConfigOptions } from './server.ts'

export type TransportName = 'stdio' | 'http' | 'websocket'

/** The transports that a row is about, where it is not about all. */
export interface Only {
  readonly names: readonly TransportName[]
  readonly because: string
}

/** One thing that REXD/1 requires, and how it is seen that it holds. */
export interface Requirement {
  readonly id: string
  readonly title: string
  /**
   * What of the protocol it is about: a method (`fs.read`), a field (`fs.read.path`, `session.open.limits.hard_timeout_ms`),
   * a member of an answer or an event (`fs.read:size`, `exec.exit:signal`), an event (`exec.exit`), an error (`-32002`).
   */
  readonly names: readonly string[]
  /** Of its server, which it shares with all that need the same; null: the common one. */
  readonly config: ConfigOptions | null
  /** It leaves a server that is of no use to others. */
  readonly alone: boolean
  /** Null: it holds over every transport. */
  readonly only: Only | null
  /** Why it cannot be tried here; null: it can. */
  readonly missing: string | null
  readonly test: (peer: Peer) => Promise<void>
}

export interface RequirementOptions {
  readonly config?: ConfigOptions
  readonly alone?: boolean
  readonly only?: Only
  /** It needs a terminal. */
  readonly terminal?: boolean
}

/** `names`: with blanks or line ends between them. */
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

/** Times of the protocol: ISO 8601 in UTC, those of files with nanoseconds. */
export const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
export const FILE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$/

/** An event of a session that can be come back to has a cursor as well; where it was opened with nothing said, over HTTP alone. */
export const withoutCursor = (peer: Peer, params: object): Readonly<Record<string, unknown>> => {
  const { cursor, ...rest } = params as Record<string, unknown>
  const expected = peer.name === 'http'
  if (expected !== Number.isSafeInteger(cursor)) throw new Error(`over ${peer.name} the cursor is ${String(cursor)}`)
  return rest
}
