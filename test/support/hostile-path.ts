import { type Socket, connect } from 'node:net'

import { TcpProxy } from './tcp-proxy.ts'

/** `impostor` leads to another machine. `replay` answers with bytes of an earlier connection. `swallow` never answers. */
export type PathTrick = 'impostor' | 'replay' | 'swallow'

/** A TCP path to a daemon. It belongs to an attacker who keeps all traffic. */
export class HostilePath extends TcpProxy {
  readonly #port: number
  /** Null forwards to the daemon. */
  trick: PathTrick | null = null
  /** Tricks that it has used. */
  readonly played = new Set<PathTrick>()
  /** All traffic in both directions. */
  readonly seen: Buffer[] = []
  /** Bytes of the first connection, by direction. */
  readonly #recorded: Record<'up' | 'down', Buffer[]> = { up: [], down: [] }
  #isRecording = true

  /** `impostor` is the port of the attacker's program. */
  constructor(port: number, impostor: number) {
    super(() => (this.trick === null ? port : impostor))
    this.#port = port
  }

  /** Stops recording for a replay. */
  stopRecording(): void {
    this.#isRecording = false
  }

  /** Sends the bytes of the first connection to the daemon again. Resolves when the daemon has closed the connection. */
  async replayToDaemon(): Promise<void> {
    const socket = connect({ host: '127.0.0.1', port: this.#port })
    socket.on('error', () => undefined).resume()
    const closed = Promise.withResolvers<unknown>()
    socket.on('close', closed.resolve)
    socket.write(Buffer.concat(this.#recorded.up))
    await closed.promise
  }

  protected override join(from: Socket, to: Socket, way: 'up' | 'down'): void {
    const { trick } = this
    from.on('data', (bytes) => {
      this.seen.push(bytes)
      if (trick !== null && way === 'up') this.played.add(trick)
      if (trick === null && this.#isRecording) this.#recorded[way].push(bytes)
      if (trick === 'replay' && way === 'up') from.write(Buffer.concat(this.#recorded.down))
      if (trick === null || trick === 'impostor') to.write(bytes)
    })
    from.on('end', () => to.end())
    from.on('close', () => to.destroy())
  }
}
