import type { Socket } from 'node:net'

import { TcpProxy } from './tcp-proxy.ts'

type Way = 'up' | 'down'

/** How long one end must be silent before it hears the other: less than the time between two renewals. One that is slower adds a turn. */
const SILENCE_MS = 250

/**
 * A TCP path on which both ends take turns, as on a path that is as long as need be: what one end sends reaches the other
 * at once, and what comes back waits until the first has said all that it can say without an answer. So the turns
 * are the waits that distance would cost. What somebody sends without waiting for it (pings, acknowledgements)
 * may add a turn by chance; nothing takes one away, since no answer can precede what it answers.
 */
export class TurnProxy extends TcpProxy {
  readonly #held: { way: Way; to: Socket; bytes: Buffer }[] = []
  readonly #onQuiet = new Set<() => void>()
  #counting = false
  #way: Way | null = null
  #silent = true
  #answers = 0
  #timer: NodeJS.Timeout | undefined

  /** Resolves when nobody has said anything for a while. */
  async quiet(): Promise<void> {
    this.#wait()
    await new Promise<void>((resolve) => this.#onQuiet.add(resolve))
  }

  /** From now on both take turns, until `roundTrips`. */
  count(): void {
    this.#counting = true
    this.#way = null
    this.#answers = 0
  }

  /** How often whoever dialled has had to wait for an answer. Nothing waits any more. */
  roundTrips(): number {
    this.#counting = false
    for (const { to, bytes } of this.#held.splice(0)) to.write(bytes)
    return this.#answers
  }

  override async close(): Promise<void> {
    clearTimeout(this.#timer)
    await super.close()
  }

  protected override join(from: Socket, to: Socket, way: Way): void {
    from.on('data', (bytes: Buffer) => this.#take(way, to, bytes))
    from.on('close', () => to.destroy())
  }

  #take(way: Way, to: Socket, bytes: Buffer): void {
    if (this.#counting && this.#way !== way) {
      if (this.#way !== null && !this.#silent) {
        this.#held.push({ way, to, bytes })
        return
      }
      this.#turn(way)
    }
    to.write(bytes)
    this.#wait()
  }

  #turn(way: Way): void {
    this.#way = way
    if (way === 'down') this.#answers += 1
  }

  /** Somebody spoke: the silence begins anew. */
  #wait(): void {
    this.#silent = false
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#onSilence(), SILENCE_MS)
  }

  #onSilence(): void {
    this.#silent = true
    const waiting = this.#held.splice(0)
    if (waiting[0] === undefined) {
      for (const resolve of this.#onQuiet) resolve()
      this.#onQuiet.clear()
      return
    }
    this.#turn(waiting[0].way)
    for (const { to, bytes } of waiting) to.write(bytes)
    this.#wait()
  }
}
