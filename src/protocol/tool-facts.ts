/** The tool that asked for a run. */
export interface ToolFacts {
  readonly operation: string
  /** SHA-256, hex, of the idempotency key with the name of its caller; null: there was none. */
  readonly key_sha256: string | null
  /** SHA-256, hex, of all that was asked for: equal for equal calls. */
  readonly call_sha256: string
}

/** What is known later of a run that was begun with a key, however it ended. */
export interface RecalledFacts extends Pick<ToolFacts, 'call_sha256'> {
  /** ISO 8601. */
  readonly started_at: string
  /** Null: on a target, which does not say. */
  readonly cwd: string | null
  readonly timeout_ms: number
  /** By its target. */
  readonly timeout_clamped: boolean
  readonly timed_out: boolean
  /** Null: it left no process running. */
  readonly descendants_ended: number | null
}
