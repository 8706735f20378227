import { MAX_FILE_CHUNK } from '../protocol/limits/rexd.ts'

/** Size of the largest message. It has a chunk of a file as text with six characters per byte (`\u0001`), and its envelope. */
export const MAX_INCOMING_MESSAGE = 6 * MAX_FILE_CHUNK + 1024 * 1024
/** Time for a server to end its programs and exit. It takes at most 10 s. */
export const CLOSE_GRACE_MS = 12_000
/** Time between SIGTERM and SIGKILL for a child process, and for a WebSocket server to answer Close. */
export const CLOSE_KILL_MS = 2_000
/** Time between the end of one stream of a connection and that of the other. */
export const DRAIN_MS = 1_000

export interface TransportEvents {
  /** `content` has the bytes of the answer's `content`, which is empty in the text, see `Transport.sendContent`. */
  onMessage(text: string, content?: Uint8Array): void
  /** Called once when no more can be received or sent. The error is null after an orderly end. */
  onClosed(error: Error | null): void
}

/** Carries whole messages to a server and back, in order. */
export interface Transport {
  /** If it returns a promise, send no more before it settles. It never throws or rejects, because `onClosed` reports failures. */
  send(text: string): void | Promise<void>
  /** Sends a message with these bytes in place of its empty `content`. Absent if the server reads contents only in base64. */
  readonly sendContent?: ((text: string, content: Uint8Array) => void | Promise<void>) | undefined
  /** Stops reading, so that the server blocks. Messages that were already read may still be delivered. */
  pause(): void
  resume(): void
  /** Closes it without further events. Resolves when it is cleaned up. */
  close(): Promise<void>
}

/** Opens transports to a server. */
export interface TransportFactory {
  /** Its name in error messages. */
  readonly name: string
  /** Whether it can be opened again. */
  readonly again: boolean
  /** Whether the server keeps sessions over this transport for a reconnect. */
  readonly keepsSessions: boolean
  /** Rejects if the server cannot be reached, or when the signal is aborted. Then there are no events. */
  open(events: TransportEvents, signal: AbortSignal): Promise<Transport>
}
