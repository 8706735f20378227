import type { Peer } from './peer.ts'
import type { ConfigOptions } from './server.ts'

/** One thing that REXD/1 requires, and how it is seen that it holds. */
export interface Requirement {
  readonly id: string
  readonly title: string
  /**
   * What of the protocol it is about: a method (`fs.read`), a field (`fs.read.path`, `session.open.limits.hard_timeout_ms`),
   * a member of an answer or an event (`fs.read:size`, `exec.exit:signal`), an event (`exec.exit`), an error (`-32002`).
   */
  readonly names: readonly string[]
  /** Of the server that it needs for itself; null: it shares one. */
  readonly config: ConfigOptions | null
  /** Where it holds; null: over every transport. */
  readonly transports: readonly string[] | null
  readonly test: (peer: Peer) => Promise<void>
}

export interface RequirementOptions {
  readonly config?: ConfigOptions
  readonly transports?: readonly string[]
}

/** `names`: with blanks between them. */
export const requirement = (
  id: string,
  title: string,
  names: string,
  test: (peer: Peer) => Promise<void>,
  { config, transports }: RequirementOptions = {},
): Requirement => ({
  id,
  title,
  names: names.split(' ').filter(Boolean),
  config: config ?? null,
  transports: transports ?? null,
  test,
})

/** Times of the protocol: ISO 8601 in UTC, those of files with nanoseconds. */
export const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
export const FILE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$/
