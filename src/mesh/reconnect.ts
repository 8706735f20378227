import { BoundedMap } from '../base/bounded-collections.ts'
import type { Timer } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import { RateLimit } from '../base/rate-limit.ts'
import type { Startable } from '../base/startable.ts'
import { type MachineId, shortId } from '../protocol/ids.ts'
import { perMinute } from '../protocol/limits/mesh.ts'
import { MAX_STANDING_CONNECTIONS, MAX_UNLISTED_CONNECTIONS } from '../protocol/limits/wire.ts'
import type { MeshConnection } from './connection.ts'
import type { MeshServices } from './services.ts'

/** Unlisted machines found by mDNS that are dialled per minute, because any host of the local network may announce any number. */
export const FOUND_UNLISTED_PER_MINUTE = 32
/** Unlisted machines dialled at once, which leaves the other `MAX_BACKGROUND_DIALS` to named machines. */
export const MAX_UNLISTED_DIALS = 2
/** Found machines that wait for a dial. mDNS finds others again within about a minute. */
export const MAX_FOUND_WAITING = 64

/** A found machine, to be tried once. Its addresses may be invented. */
export interface FoundMachine {
  readonly machineId: MachineId
  readonly addresses: readonly string[]
}

/** All unlisted machines share one rate limit. */
const UNLISTED = ''

/** Machines that mDNS found. Each is dialled once, known machines first. Unlisted ones are limited to `MAX_UNLISTED_DIALS` at a time and `FOUND_UNLISTED_PER_MINUTE`. */
export class FoundMachines {
  readonly #node: MeshServices['node']
  readonly #admitted: RateLimit
  readonly #waiting = new Map<MachineId, FoundMachine>()
  readonly #unlisted = new Set<MachineId>()

  constructor(deps: Pick<MeshServices, 'clock' | 'node'>) {
    this.#node = deps.node
    this.#admitted = new RateLimit(deps, perMinute(FOUND_UNLISTED_PER_MINUTE))
  }

  /** Adds a machine, unless there are too many unlisted ones. */
  add(found: FoundMachine): void {
    const { machineId } = found
    const welcome = this.#waiting.has(machineId) || this.#node.isKnown(machineId)
    if (welcome || this.#mayWait()) this.#waiting.set(machineId, found)
  }

  /** The next machine to dial, or null. Each is returned once. Call `done` after its dial. */
  next(): FoundMachine | null {
    const known = [...this.#waiting.keys()].find((machineId) => this.#node.isKnown(machineId))
    const machineId = known ?? this.#firstUnlisted()
    const found = machineId === undefined ? undefined : this.#waiting.get(machineId)
    if (found === undefined) return null
    this.#waiting.delete(found.machineId)
    if (known === undefined) this.#unlisted.add(found.machineId)
    return found
  }

  done(machineId: MachineId): void {
    this.#unlisted.delete(machineId)
  }

  #mayWait(): boolean {
    return this.#node.acceptsUnlisted && this.#waiting.size < MAX_FOUND_WAITING && this.#admitted.allows(UNLISTED)
  }

  #firstUnlisted(): MachineId | undefined {
    // Connections are counted only while an unlisted machine waits, because this runs at each change of a connection.
    const room =
      this.#waiting.size > 0 && this.#unlisted.size < MAX_UNLISTED_DIALS && this.#node.unlistedConnections() < MAX_UNLISTED_CONNECTIONS
    return room ? this.#waiting.keys().next().value : undefined
  }
}

/** A connection that was used within this time stays, and is made again when it is lost. */
export const RECENT_MS = 600_000
/** Machines that are reconnected for that reason alone. If there are more, the host with most loses its oldest. A running run dials by itself. */
export const MAX_RECENT_MACHINES = 32
/** Interval of the checks for unused connections. */
export const UNUSED_SWEEP_MS = 60_000

/** Recently used machines beyond the persistent peers. Their connections stay, and are closed when they are no longer used. */
export class RecentMachines {
  readonly #deps: Pick<MeshServices, 'clock' | 'node'>
  /** Time in monotonic milliseconds until which each is wanted. */
  readonly #until = new BoundedMap<MachineId, number>({ max: MAX_RECENT_MACHINES })

  constructor(deps: Pick<MeshServices, 'clock' | 'node'>) {
    this.#deps = deps
  }

  /** Machines whose connection was lost while it was in use. */
  list(): MachineId[] {
    const now = this.#deps.clock.monotonic()
    for (const [machineId, until] of this.#until) if (until <= now) this.#until.delete(machineId)
    return [...this.#until.keys()]
  }

  /** Handles a lost connection. Returns true if it should be made again. */
  lost(connection: MeshConnection): boolean {
    const { machineId } = connection
    // A connection that this side closed is not made again.
    if (connection.givenUp || !this.#deps.node.isKnown(machineId) || !this.#isOfUse(connection)) return false
    this.#until.set(machineId, this.#deps.clock.monotonic() + RECENT_MS, connection.host)
    return true
  }

  /** Above `MAX_STANDING_CONNECTIONS`, closes connections that this side dialled and that were unused for `RECENT_MS`. Connections that the other end needs were dialled by it. */
  endUnused(wanted: ReadonlySet<MachineId>): void {
    const open = this.#deps.node.connections()
    if (open.length <= MAX_STANDING_CONNECTIONS) return
    for (const connection of open) {
      const { inbound, machineId } = connection
      if (inbound || wanted.has(machineId) || !this.#deps.node.isKnown(machineId)) continue
      if (!this.#isOfUse(connection)) connection.abort(new AppError('peer_unreachable', 'the connection was unused'))
    }
  }

  #isOfUse(connection: MeshConnection): boolean {
    return !connection.unusedFor(RECENT_MS) || this.#deps.node.reach.isRelay(connection.machineId)
  }
}

/** First and longest pause before a reconnect. */
export const RECONNECT_MIN_MS = 500
export const RECONNECT_MAX_MS = 60_000
/** Part of `MAX_PARALLEL_DIALS` for persistent peers and found machines. */
export const MAX_BACKGROUND_DIALS = 8
/** A connection that ends sooner counts as a failure, and the next pause grows. */
export const SETTLED_CONNECTION_MS = 5_000

type ReconnectDeps = Pick<MeshServices, 'book' | 'clock' | 'log' | 'node' | 'peerClasses' | 'executor'>

/** Delay after a change, because changes come in bursts, for example the cards of a whole mesh. */
const LOOK_AFTER_MS = 100

interface Attempt {
  failures: number
  /** Monotonic milliseconds. */
  nextAt: number
  lastError: string | null
}

/**
 * Keeps connections to persistent peers and recently used machines, with a growing pause after each failure. Also tries machines found on
 * the local network. All dials together are bounded, and each machine is dialled once at a time.
 */
export class Reconnect implements Startable {
  readonly #deps: ReconnectDeps
  readonly #attempts = new Map<MachineId, Attempt>()
  readonly #found: FoundMachines
  readonly #recent: RecentMachines
  readonly #dialling = new Set<MachineId>()
  readonly #stop = new AbortController()
  #timer: Timer | null = null
  #poll: Timer | null = null
  #sweep: Timer | null = null

  constructor(deps: ReconnectDeps) {
    this.#deps = deps
    this.#found = new FoundMachines(deps)
    this.#recent = new RecentMachines(deps)
  }

  /** Call it after the node's start. */
  start(): void {
    this.#deps.node.onDisconnected((connection) => this.#onLost(connection))
    this.#deps.node.onFound((machineId, addresses) => this.#onFound({ machineId, addresses }))
    this.#deps.executor.onSnapshot(() => this.poll())
    this.#lookNow()
    this.#endUnused()
  }

  stop(): void {
    this.#stop.abort()
    this.#timer?.cancel()
    this.#poll?.cancel()
    this.#sweep?.cancel()
  }

  /** Call it when contacts or addresses have changed. After `LOOK_AFTER_MS` it updates all peer classes and dials wanted machines. */
  poll(): void {
    if (!this.#stop.signal.aborted) this.#poll ??= this.#deps.clock.setTimeout(() => this.#lookNow(), LOOK_AFTER_MS, { unref: true })
  }

  #lookNow(): void {
    this.#poll = null
    this.#deps.peerClasses.learn()
    const wanted = new Set([...this.#deps.book.wanted(), ...this.#recent.list()])
    for (const machineId of this.#attempts.keys()) if (!wanted.has(machineId)) this.#attempts.delete(machineId)
    for (const machineId of wanted) if (!this.#attempts.has(machineId)) this.#attempts.set(machineId, fresh())
    this.#pump()
  }

  /** Reconnects soon, but with a growing pause if the connection ended at once. */
  #onLost(connection: MeshConnection): void {
    const { machineId } = connection
    if (this.#deps.node.connectionsTo(machineId).length > 0) return
    const attempt = this.#attempts.get(machineId)
    if (attempt === undefined) {
      if (this.#recent.lost(connection)) this.poll()
      return
    }
    const lived = this.#deps.clock.now() - connection.openedAtMs
    attempt.failures = lived < SETTLED_CONNECTION_MS ? attempt.failures + 1 : 0
    attempt.lastError = `connected, and after ${lived} ms ${connection.ended ?? 'lost'}`
    this.#wait(attempt)
  }

  #wait(attempt: Attempt): void {
    const wait = Math.min(RECONNECT_MAX_MS, RECONNECT_MIN_MS * 2 ** Math.min(attempt.failures, 16))
    attempt.nextAt = this.#deps.clock.monotonic() + jittered(wait)
    this.#pump()
  }

  #endUnused(): void {
    // Machines that are no longer recent are dropped from `#attempts`.
    this.poll()
    this.#recent.endUnused(new Set(this.#attempts.keys()))
    this.#sweep = this.#deps.clock.setTimeout(() => this.#endUnused(), UNUSED_SWEEP_MS, { unref: true })
  }

  /** The wanted machines, whether they are connected, and the last error, for `/diagnostics/mesh`. */
  status(): { machine_id: MachineId; connected: boolean; failures: number; last_error: string | null }[] {
    return [...this.#attempts].map(([machineId, attempt]) => {
      const connections = this.#deps.node.connectionsTo(machineId)
      const settled = connections.some(({ openedAtMs }) => this.#deps.clock.now() - openedAtMs >= SETTLED_CONNECTION_MS)
      return {
        machine_id: machineId,
        connected: connections.length > 0,
        failures: settled ? 0 : attempt.failures,
        last_error: settled ? null : attempt.lastError,
      }
    })
  }

  #pump(): void {
    this.#timer?.cancel()
    this.#timer = null
    if (this.#stop.signal.aborted) return
    const now = this.#deps.clock.monotonic()
    let wake = Number.POSITIVE_INFINITY
    // The machine due longest comes first. Otherwise many dead machines could delay the others forever.
    for (const [machineId, attempt] of [...this.#attempts].toSorted(([, a], [, b]) => a.nextAt - b.nextAt)) {
      if (attempt.nextAt <= now && this.#dialling.size >= MAX_BACKGROUND_DIALS) continue
      if (!this.#isFree(machineId)) continue
      if (attempt.nextAt <= now) void this.#try(machineId, attempt)
      else {
        wake = attempt.nextAt
        break
      }
    }
    this.#pumpFound()
    if (wake < Number.POSITIVE_INFINITY) this.#timer = this.#deps.clock.setTimeout(() => this.#pump(), wake - now, { unref: true })
  }

  /** The machine is not connected, and no dial of it is under way. */
  #isFree(machineId: MachineId): boolean {
    return !this.#dialling.has(machineId) && this.#deps.node.connectionsTo(machineId).length === 0
  }

  /** The book stores addresses of known machines only, because unlisted ones could fill it. */
  #onFound(found: FoundMachine): void {
    const { machineId, addresses } = found
    if (addresses.length === 0) return
    if (this.#deps.node.isKnown(machineId)) this.#deps.book.learnLocal(machineId, addresses)
    if (this.#isFree(machineId)) this.#found.add(found)
    this.#pump()
  }

  #pumpFound(): void {
    while (this.#dialling.size < MAX_BACKGROUND_DIALS) {
      const found = this.#found.next()
      if (found === null) return
      if (this.#isFree(found.machineId)) void this.#tryFound(found)
      else this.#found.done(found.machineId)
    }
  }

  async #tryFound({ machineId, addresses }: FoundMachine): Promise<void> {
    this.#dialling.add(machineId)
    await this.#dial(machineId, addresses)
    this.#dialling.delete(machineId)
    this.#found.done(machineId)
    this.#pump()
  }

  async #try(machineId: MachineId, attempt: Attempt): Promise<void> {
    this.#dialling.add(machineId)
    const error = await this.#dial(machineId, this.#deps.book.addressesOf(machineId))
    this.#dialling.delete(machineId)
    // `failures` is reset later, see `#onLost`.
    if (error === null) return this.#pump()
    attempt.failures += 1
    attempt.lastError = error
    this.#wait(attempt)
  }

  async #dial(machineId: MachineId, addresses: readonly string[]): Promise<string | null> {
    try {
      await this.#deps.node.dial(machineId, addresses, this.#stop.signal, { background: true })
      return null
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#deps.log.debug({ machine: shortId(machineId), err: errorText(error) }, 'not reached')
      return errorText(error)
    }
  }
}

const fresh = (): Attempt => ({ failures: 0, nextAt: 0, lastError: null })

/** Between 50 % and 100 % of the time, so that a fleet does not reconnect in step. */
const jittered = (ms: number): number => Math.ceil(ms * (0.5 + Math.random() / 2))
