/** What is asked, decoded and not yet allowed. */
export interface Intent {
  readonly argv: readonly string[]
  /** A requester may not choose one: anything but null is refused. */
  readonly cwd: string | null
  /** Bytes of stdin announced; null: none. */
  readonly stdin_len: number | null
  /** SHA-256 of all of it, or of the hashes of its pieces where it has several, hex; null: none. */
  readonly stdin_sha256?: string | null
  /** Milliseconds; null: the cap. Below 1 is refused like one above the cap. */
  readonly timeout_ms: number | null
  /** A timeout above the cap runs at the cap instead of being refused; so do a lifetime and bytes to keep. */
  readonly clamp: boolean
  /** It is to outlive its caller; absent or null: it is not. Its time is then this one's, and `timeout_ms` is null. */
  readonly detach?: DetachIntent | null
}

/** How long a run is to outlive its caller, and what is to be kept of its output. */
export interface DetachIntent {
  /** Milliseconds; null: the cap. */
  readonly lifetime_ms: number | null
  /** Bytes of both streams together; null: the cap. */
  readonly keep_bytes: number | null
}
