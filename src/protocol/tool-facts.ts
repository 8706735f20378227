/** The tool that asked for a run. */
export interface ToolFacts {
  readonly operation: string
  /** SHA-256, hex, of the idempotency key with the name of its caller; null: there was none. */
  readonly key_sha256: string | null
  /** SHA-256, hex, of all that was asked for: equal for equal calls. */
  readonly call_sha256: string
}
