import type { Home, RexdProcess } from './server.ts'

/** Carries messages to a server and back over any transport. */
export interface Wire {
  /** Name of the transport. */
  readonly name: string
  readonly home: Home
  /** The server process. */
  readonly process: RexdProcess
  /** Sends one message, valid or not. */
  send(message: string | Uint8Array): void
  /** Registers the handler of received messages. Called once, before the first message is sent. */
  listen(listener: (text: string) => void): void
  pause(): void
  resume(): void
  /** Resolves with the reason when no more messages can arrive. */
  readonly closed: Promise<string>
  /** Opens another connection to the same server. */
  another(): Promise<Wire>
  /** Leaves. Resolves when the server has noticed. */
  leave(): Promise<void>
}
