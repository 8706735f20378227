import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { type MachineId, shortId } from '../protocol/ids.ts'
import { DIRECT_RETRY_MAX_MS, DIRECT_RETRY_MIN_MS, RELAYED_IDLE_MS } from '../protocol/limits/mesh.ts'
import type { AddressBook } from './address-book.ts'
import { relayOfText } from './addresses.ts'
import type { MeshConnection } from './connection.ts'
import type { MeshNode } from './node.ts'

/** How often it is looked who is connected only through a relay, and which relayed connections are of no use any more. */
const LOOK_MS = 1_000

export interface DirectUpgradesComponents {
  readonly node: Pick<MeshNode, 'connections' | 'connectionsTo' | 'dial' | 'isKnown'>
  readonly book: Pick<AddressBook, 'addressesOf'>
  readonly clock: Pick<Clock, 'monotonic'>
  readonly log: Logger
}

interface Attempt {
  waitMs: number
  /** Monotonic milliseconds. */
  nextAt: number
}

/**
 * Tries the direct way to machines that are connected only through a relay, ever more seldom, and gives relayed connections
 * up beside a direct one when nothing has run on them for a while.
 */
export class DirectUpgrades implements Startable {
  /** Whether something runs on a connection. */
  isBusy: (connection: MeshConnection) => boolean = () => false
  readonly #parts: DirectUpgradesComponents
  readonly #attempts = new Map<MachineId, Attempt>()
  /** Since when nothing runs on them, in monotonic milliseconds. */
  readonly #idle = new Map<MeshConnection, number>()
  readonly #stop = new AbortController()
  #timer: NodeJS.Timeout | undefined

  constructor(components: DirectUpgradesComponents) {
    this.#parts = components
  }

  start(): void {
    this.#timer = setInterval(() => this.#poll(), LOOK_MS).unref()
  }

  stop(): void {
    this.#stop.abort()
    clearInterval(this.#timer)
  }

  #poll(): void {
    const { node } = this.#parts
    const relayed = Map.groupBy(
      node.connections().filter(({ relay }) => relay !== null),
      ({ machineId }) => machineId,
    )
    for (const machineId of this.#attempts.keys()) if (!relayed.has(machineId)) this.#attempts.delete(machineId)
    for (const connection of this.#idle.keys()) if (!connection.open) this.#idle.delete(connection)
    for (const [machineId, connections] of relayed) {
      const isDirect = node.connectionsTo(machineId).some(({ relay }) => relay === null)
      if (isDirect) for (const connection of connections) this.#giveUpIdle(connection)
      else if (node.isKnown(machineId)) this.#tryLater(machineId, connections)
    }
  }

  #giveUpIdle(connection: MeshConnection): void {
    const now = this.#parts.clock.monotonic()
    const since = this.isBusy(connection) ? now : (this.#idle.get(connection) ?? now)
    this.#idle.set(connection, since)
    if (now - since >= RELAYED_IDLE_MS) connection.abort(new AppError('peer_unreachable', 'a direct connection has taken its place'))
  }

  #tryLater(machineId: MachineId, relayed: readonly MeshConnection[]): void {
    const now = this.#parts.clock.monotonic()
    const attempt = this.#attempts.get(machineId) ?? { waitMs: DIRECT_RETRY_MIN_MS, nextAt: now + DIRECT_RETRY_MIN_MS }
    this.#attempts.set(machineId, attempt)
    if (attempt.nextAt > now) return
    attempt.waitMs = Math.min(2 * attempt.waitMs, DIRECT_RETRY_MAX_MS)
    // Both ends try: not in step, and not before this try is over.
    attempt.nextAt = now + attempt.waitMs * (1 + Math.random())
    void this.#try(machineId, relayed)
  }

  async #try(machineId: MachineId, relayed: readonly MeshConnection[]): Promise<void> {
    const { node, book, log } = this.#parts
    const direct = book.addressesOf(machineId).filter((text) => relayOfText(text) === null)
    if (direct.length === 0) return
    try {
      await node.dial(machineId, direct, this.#stop.signal, { besides: relayed, background: true })
    } catch (error) {
      log.debug({ machine: shortId(machineId), err: errorText(error) }, 'there is no direct way')
    }
  }
}
