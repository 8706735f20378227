import type { Home, RexdProcess } from './server.ts'

/** What carries messages to a server and back, whatever it is. */
export interface Wire {
  /** Of its transport. */
  readonly name: string
  readonly home: Home
  /** The server, to be looked at and signalled. */
  readonly process: RexdProcess
  /** One message, or what only claims to be one. */
  send(message: string | Uint8Array): void
  /** Called with each message that comes; once, before anything is sent. */
  listen(listener: (text: string) => void): void
  pause(): void
  resume(): void
  /** Resolves, with how it was, when nothing more comes. */
  readonly closed: Promise<string>
  /** Another connection to the same server. */
  another(): Promise<Wire>
  /** Leaves; resolves when the server has seen it. */
  leave(): Promise<void>
}
