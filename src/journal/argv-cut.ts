/** What is known of an argv of which only the beginning is written. */
export interface ArgvCut {
  readonly tokens: number
  /** Of its UTF-8, and one for each empty token. */
  readonly bytes: number
  /** Of the whole argv as JSON, hex. */
  readonly sha256: string
}
