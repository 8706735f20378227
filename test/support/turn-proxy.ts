import type { Socket } from 'node:net'

import { TcpProxy } from './tcp-proxy.ts'

type Way = 'up' | 'down'

/** How long one end must be silent before the other end's data passes. Less than the interval of lease renewals. Slower ends add a turn. */
const SILENCE_MS = 250

/**
 * A TCP proxy on which the ends take turns, as on a path with a very long delay. Data of the current end passes
 * at once. Data of the other end waits until the current end has sent everything that needs no answer. So each turn
 * is a wait that distance would cause. Data that is sent without waiting (pings, acknowledgements)
 * may add a turn by chance. The count is never too low, because no answer can precede its question.
 */
export class TurnProxy extends TcpProxy {
  readonly #held: { way: Way; to: Socket; bytes: Buffer }[] = []
  readonly #onQuiet = new Set<() => void>()
  #counting = false
  #way: Way | null = null
  #silent = true
  #answers = 0
  #timer: NodeJS.Timeout | undefined

  /** Resolves when neither end has sent data for a while. */
  async quiet(): Promise<void> {
    this.#wait()
    await new Promise<void>((resolve) => this.#onQuiet.add(resolve))
  }

  /** Makes both ends take turns until `roundTrips`. */
  count(): void {
    this.#counting = true
    this.#way = null
    this.#answers = 0
  }

  /** Returns how often the dialling end waited for an answer, and forwards all data from now on. */
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

  /** Restarts the wait for silence, because an end has sent data. */
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
