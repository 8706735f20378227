import { MAX_FILE_CHUNK } from '../protocol/limits/rexd.ts'

/** One message of the server: a chunk of a file as text with six characters for each byte (`\u0001`), and room around it. */
export const MAX_INCOMING_MESSAGE = 6 * MAX_FILE_CHUNK + 1024 * 1024
/** For a server to end what runs and go: it takes 10 s to do so at the most. */
export const CLOSE_GRACE_MS = 12_000
/** Between SIGTERM and SIGKILL for a child process, and for the other end of a WebSocket to answer Close. */
export const CLOSE_KILL_MS = 2_000
/** Between the end of one stream of a connection and that of the rest of it. */
export const DRAIN_MS = 1_000

/** What a transport tells. */
export interface TransportEvents {
  /** One whole message. */
  onMessage(text: string): void
  /** Nothing more comes, and nothing more can be sent; once. Null: it ended in order; else what happened. */
  onClosed(error: Error | null): void
}

/** Carries messages, whatever they are, to one server and back, whole and in their order. */
export interface Transport {
  /** A promise: no more should be sent before it settles. Neither throws nor rejects: a failure is told by `onClosed`. */
  send(text: string): void | Promise<void>
  /** Reads no more, so that the server is held; what was read already may still be told. */
  pause(): void
  resume(): void
  /** Ends it from here and tells nothing more; resolves when nothing is left of it. */
  close(): Promise<void>
}

/** A way to a server. */
export interface TransportFactory {
  /** What it is, for the text of an error. */
  readonly name: string
  /** It can be opened more than once, one after the other. */
  readonly again: boolean
  /** The server keeps sessions of callers who come this way, so that they may come back. */
  readonly keepsSessions: boolean
  /** Rejects where there is no way, and may do so when the signal says that nobody wants it any more; then nothing is told. */
  open(events: TransportEvents, signal: AbortSignal): Promise<Transport>
}
