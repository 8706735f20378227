import { AppError, errorText } from '../base/errors.ts'
import type { Startable } from '../base/startable.ts'
import { type MachineId, shortId } from '../protocol/ids.ts'
import { DIRECT_RETRY_MAX_MS, DIRECT_RETRY_MIN_MS, RELAYED_IDLE_MS } from '../protocol/limits/mesh.ts'
import { relayOfText } from './addresses.ts'
import type { MeshConnection } from './connection.ts'
import type { MeshServices } from './services.ts'

/** Interval of the checks for relayed connections. */
const LOOK_MS = 1_000

type DirectUpgradesDeps = Pick<MeshServices, 'book' | 'clock' | 'log' | 'node'>

interface Attempt {
  waitMs: number
  /** Monotonic milliseconds. */
  nextAt: number
}

/** Tries direct connections to machines that are connected only through a relay, with growing pauses. If there is a direct connection, it closes the relayed ones after they were unused for a while. */
export class DirectUpgrades implements Startable {
  /** Whether a channel is open on a connection. */
  isBusy: (connection: MeshConnection) => boolean = () => false
  readonly #deps: DirectUpgradesDeps
  readonly #attempts = new Map<MachineId, Attempt>()
  /** Since when relayed connections are unused, in monotonic milliseconds. */
  readonly #idle = new Map<MeshConnection, number>()
  readonly #stop = new AbortController()
  #timer: NodeJS.Timeout | undefined

  constructor(deps: DirectUpgradesDeps) {
    this.#deps = deps
  }

  start(): void {
    this.#timer = setInterval(() => this.#poll(), LOOK_MS).unref()
  }

  stop(): void {
    this.#stop.abort()
    clearInterval(this.#timer)
  }

  #poll(): void {
    const { node } = this.#deps
    const relayed = Map.groupBy(
      node.connections().filter(({ relay }) => relay !== null),
      ({ machineId }) => machineId,
    )
    for (const machineId of this.#attempts.keys()) if (!relayed.has(machineId)) this.#attempts.delete(machineId)
    for (const connection of this.#idle.keys()) if (!connection.open) this.#idle.delete(connection)
    for (const [machineId, connections] of relayed) {
      const isDirect = node.connectionsTo(machineId).some(({ relay }) => relay === null)
      if (isDirect) for (const connection of connections) this.#closeIdle(connection)
      else if (node.isKnown(machineId)) this.#tryLater(machineId, connections)
    }
  }

  #closeIdle(connection: MeshConnection): void {
    const now = this.#deps.clock.monotonic()
    const since = this.isBusy(connection) ? now : (this.#idle.get(connection) ?? now)
    this.#idle.set(connection, since)
    if (now - since >= RELAYED_IDLE_MS) connection.abort(new AppError('peer_unreachable', 'a direct connection replaced it'))
  }

  #tryLater(machineId: MachineId, relayed: readonly MeshConnection[]): void {
    const now = this.#deps.clock.monotonic()
    const attempt = this.#attempts.get(machineId) ?? { waitMs: DIRECT_RETRY_MIN_MS, nextAt: now + DIRECT_RETRY_MIN_MS }
    this.#attempts.set(machineId, attempt)
    if (attempt.nextAt > now) return
    attempt.waitMs = Math.min(2 * attempt.waitMs, DIRECT_RETRY_MAX_MS)
    // Both ends try. The pause is random so that they do not try in step, and longer than this attempt.
    attempt.nextAt = now + attempt.waitMs * (1 + Math.random())
    void this.#try(machineId, relayed)
  }

  async #try(machineId: MachineId, relayed: readonly MeshConnection[]): Promise<void> {
    const { node, book, log } = this.#deps
    const direct = book.addressesOf(machineId).filter((text) => relayOfText(text) === null)
    if (direct.length === 0) return
    try {
      await node.dial(machineId, direct, this.#stop.signal, { besides: relayed, background: true })
    } catch (error) {
      log.debug({ machine: shortId(machineId), err: errorText(error) }, 'no direct route')
    }
  }
}
