import { type Socket, connect } from 'node:net'

import { TcpProxy } from './tcp-proxy.ts'

/** `impostor`: leads to another machine. `replay`: answers with bytes of an earlier connection. `swallow`: answers nothing. */
export type PathTrick = 'impostor' | 'replay' | 'swallow'

/** A TCP path to a daemon in the hands of an attacker who keeps all that passes. */
export class HostilePath extends TcpProxy {
  readonly #port: number
  /** Null: it carries to the daemon. */
  trick: PathTrick | null = null
  /** Tricks that it has played. */
  readonly played = new Set<PathTrick>()
  /** All that has passed, both ways. */
  readonly seen: Buffer[] = []
  /** Bytes of the first connection, by direction. */
  readonly #recorded: Record<'up' | 'down', Buffer[]> = { up: [], down: [] }
  #isRecording = true

  /** `impostor`: the port of the attacker's own program. */
  constructor(port: number, impostor: number) {
    super(() => (this.trick === null ? port : impostor))
    this.#port = port
  }

  /** Keeps nothing more for a replay. */
  stopRecording(): void {
    this.#isRecording = false
  }

  /** Sends what the first connection has sent to the daemon once more; resolves when the daemon has ended it. */
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
