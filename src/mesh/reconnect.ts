import type { Clock, Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { RateLimit } from '../base/rate-limit.ts'
import type { Startable } from '../base/startable.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import { type MachineId, shortId } from '../protocol/ids.ts'
import { perMinute } from '../protocol/limits/mesh.ts'
import { MAX_UNLISTED_CONNECTIONS } from '../protocol/limits/wire.ts'
import type { AddressBook } from './address-book.ts'
import type { MeshConnection } from './connection.ts'
import type { MeshNode } from './node.ts'
import type { Reachability } from './reachability.ts'
import { RecentMachines, UNUSED_SWEEP_MS } from './recent-machines.ts'
import type { PeerClasses } from './peer-classes.ts'

/** Strangers found by mDNS that are dialled per minute, since any host of the local network may announce any number of machines … */
export const FOUND_UNLISTED_PER_MINUTE = 32
/** … that are dialled at once, which leaves the other `MAX_BACKGROUND_DIALS` to named machines … */
export const MAX_UNLISTED_DIALS = 2
/** … and that wait for their turn; mDNS finds those beyond it again within a minute or so. */
export const MAX_FOUND_WAITING = 64

export interface FoundMachinesComponents {
  readonly node: Pick<MeshNode, 'isKnown' | 'strangerConnections' | 'strangersMayCome'>
  readonly clock: Pick<Clock, 'monotonic'>
}

/** A machine to be tried once, at addresses that anybody may have made up. */
export interface FoundMachine {
  readonly machineId: MachineId
  readonly addresses: readonly string[]
}

/** All strangers are one source. */
const UNLISTED = ''

/**
 * Machines that mDNS found and for which no caller waits. Each is dialled once: known machines first, strangers
 * `MAX_UNLISTED_DIALS` at a time and `FOUND_UNLISTED_PER_MINUTE`, because any host of the local network may announce any
 * number of machines and addresses.
 */
export class FoundMachines {
  readonly #node: Pick<MeshNode, 'isKnown' | 'strangerConnections' | 'strangersMayCome'>
  readonly #admitted: RateLimit
  readonly #waiting = new Map<MachineId, FoundMachine>()
  readonly #strangers = new Set<MachineId>()

  constructor(components: FoundMachinesComponents) {
    this.#node = components.node
    this.#admitted = new RateLimit(components, perMinute(FOUND_UNLISTED_PER_MINUTE))
  }

  /** Takes it in, unless it is one stranger too many. */
  add(found: FoundMachine): void {
    const { machineId } = found
    const welcome = this.#waiting.has(machineId) || this.#node.isKnown(machineId)
    if (welcome || this.#mayWait()) this.#waiting.set(machineId, found)
  }

  /** The machine to dial now; null when there is none. Each is handed out once, and `done` is called for it. */
  next(): FoundMachine | null {
    const known = [...this.#waiting.keys()].find((machineId) => this.#node.isKnown(machineId))
    const machineId = known ?? this.#firstStranger()
    const found = machineId === undefined ? undefined : this.#waiting.get(machineId)
    if (found === undefined) return null
    this.#waiting.delete(found.machineId)
    if (known === undefined) this.#strangers.add(found.machineId)
    return found
  }

  done(machineId: MachineId): void {
    this.#strangers.delete(machineId)
  }

  #mayWait(): boolean {
    return this.#node.strangersMayCome && this.#waiting.size < MAX_FOUND_WAITING && this.#admitted.allows(UNLISTED)
  }

  #firstStranger(): MachineId | undefined {
    // Asked at each connection that comes and ends: all connections are gone through only while a stranger waits.
    const room =
      this.#waiting.size > 0 && this.#strangers.size < MAX_UNLISTED_DIALS && this.#node.strangerConnections() < MAX_UNLISTED_CONNECTIONS
    return room ? this.#waiting.keys().next().value : undefined
  }
}

/** Reconnecting to a wanted machine: the first wait, and the longest. */
export const RECONNECT_MIN_MS = 500
export const RECONNECT_MAX_MS = 60_000
/** Of `MAX_PARALLEL_DIALS`, those for standing connections and found machines, for which no caller waits. */
export const MAX_BACKGROUND_DIALS = 8
/** A connection that ends sooner was refused, whatever its handshake came to: the wait before the next grows. */
export const SETTLED_CONNECTION_MS = 5_000

type DiallingNode = Pick<
  MeshNode,
  'connections' | 'connectionsTo' | 'dial' | 'isKnown' | 'onDisconnected' | 'onFound' | 'strangerConnections' | 'strangersMayCome'
> & { readonly reach?: Pick<Reachability, 'isRelay'> }

export interface ReconnectComponents {
  readonly node: DiallingNode
  readonly book: AddressBook
  readonly standings: Pick<PeerClasses, 'learn'>
  readonly port: Pick<ExecutorClient, 'onSnapshot'>
  readonly clock: Clock
  readonly log: Logger
}

/** Changes come in bursts (the cards of a whole mesh arrive): one look follows this long after the first. */
const LOOK_AFTER_MS = 100

interface Attempt {
  failures: number
  /** Monotonic milliseconds. */
  nextAt: number
  lastError: string | null
}

/**
 * Keeps a connection to every machine that the book finds worth one, or that was of use lately; waits longer after each failure.
 * Machines found on the local network are tried beside them. All dials at once are bounded, and no machine is dialled twice at once.
 */
export class Reconnect implements Startable {
  readonly #node: DiallingNode
  readonly #book: AddressBook
  readonly #standings: Pick<PeerClasses, 'learn'>
  readonly #port: Pick<ExecutorClient, 'onSnapshot'>
  readonly #clock: Clock
  readonly #log: Logger
  readonly #attempts = new Map<MachineId, Attempt>()
  readonly #found: FoundMachines
  readonly #recent: RecentMachines
  readonly #dialling = new Set<MachineId>()
  readonly #stop = new AbortController()
  #timer: Timer | null = null
  #poll: Timer | null = null
  #sweep: Timer | null = null

  constructor(components: ReconnectComponents) {
    this.#node = components.node
    this.#book = components.book
    this.#standings = components.standings
    this.#port = components.port
    this.#clock = components.clock
    this.#log = components.log
    this.#found = new FoundMachines(components)
    this.#recent = new RecentMachines(components)
  }

  /** After the node's start. */
  start(): void {
    this.#node.onDisconnected((connection) => this.#onLost(connection))
    this.#node.onFound((machineId, addresses) => this.#onFound({ machineId, addresses }))
    this.#port.onSnapshot(() => this.poll())
    this.#lookNow()
    this.#endUnused()
  }

  stop(): void {
    this.#stop.abort()
    this.#timer?.cancel()
    this.#poll?.cancel()
    this.#sweep?.cancel()
  }

  /** Contacts or addresses have changed: after `LOOK_AFTER_MS` learns all standings anew and dials wanted machines that are not connected. */
  poll(): void {
    if (!this.#stop.signal.aborted) this.#poll ??= this.#clock.setTimeout(() => this.#lookNow(), LOOK_AFTER_MS, { unref: true })
  }

  #lookNow(): void {
    this.#poll = null
    this.#standings.learn()
    const wanted = new Set([...this.#book.wanted(), ...this.#recent.list()])
    for (const machineId of this.#attempts.keys()) if (!wanted.has(machineId)) this.#attempts.delete(machineId)
    for (const machineId of wanted) if (!this.#attempts.has(machineId)) this.#attempts.set(machineId, fresh())
    this.#pump()
  }

  /** It is dialled again soon, unless it ends what it has just begun: then ever later, as if it did not answer. */
  #onLost(connection: MeshConnection): void {
    const { machineId } = connection
    if (this.#node.connectionsTo(machineId).length > 0) return
    const attempt = this.#attempts.get(machineId)
    if (attempt === undefined) {
      if (this.#recent.lost(connection)) this.poll()
      return
    }
    const lived = this.#clock.now() - connection.openedAtMs
    attempt.failures = lived < SETTLED_CONNECTION_MS ? attempt.failures + 1 : 0
    attempt.lastError = `connected, and after ${lived} ms ${connection.ended ?? 'lost'}`
    this.#wait(attempt)
  }

  #wait(attempt: Attempt): void {
    const wait = Math.min(RECONNECT_MAX_MS, RECONNECT_MIN_MS * 2 ** Math.min(attempt.failures, 16))
    attempt.nextAt = this.#clock.monotonic() + jittered(wait)
    this.#pump()
  }

  #endUnused(): void {
    // Those that were recent and are not any more are let go.
    this.poll()
    this.#recent.endUnused(new Set(this.#attempts.keys()))
    this.#sweep = this.#clock.setTimeout(() => this.#endUnused(), UNUSED_SWEEP_MS, { unref: true })
  }

  /** For `/diagnostics/mesh`: who is wanted, connected or not, and why not. */
  status(): { machine_id: MachineId; connected: boolean; failures: number; last_error: string | null }[] {
    return [...this.#attempts].map(([machineId, attempt]) => {
      const connections = this.#node.connectionsTo(machineId)
      const settled = connections.some(({ openedAtMs }) => this.#clock.now() - openedAtMs >= SETTLED_CONNECTION_MS)
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
    const now = this.#clock.monotonic()
    let wake = Number.POSITIVE_INFINITY
    // The machine due longest goes first: otherwise many that do not answer would keep those behind them from ever being dialled.
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
    if (wake < Number.POSITIVE_INFINITY) this.#timer = this.#clock.setTimeout(() => this.#pump(), wake - now, { unref: true })
  }

  /** Neither connected nor being dialled. */
  #isFree(machineId: MachineId): boolean {
    return !this.#dialling.has(machineId) && this.#node.connectionsTo(machineId).length === 0
  }

  /** The book keeps addresses of known machines only: strangers could fill it with theirs. */
  #onFound(found: FoundMachine): void {
    const { machineId, addresses } = found
    if (addresses.length === 0) return
    if (this.#node.isKnown(machineId)) this.#book.learnLocal(machineId, addresses)
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
    const error = await this.#dial(machineId, this.#book.addressesOf(machineId))
    this.#dialling.delete(machineId)
    // `failures` is not reset yet: see `#onLost`.
    if (error === null) return this.#pump()
    attempt.failures += 1
    attempt.lastError = error
    this.#wait(attempt)
  }

  async #dial(machineId: MachineId, addresses: readonly string[]): Promise<string | null> {
    try {
      await this.#node.dial(machineId, addresses, this.#stop.signal, { background: true })
      return null
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#log.debug({ machine: shortId(machineId), err: errorText(error) }, 'not reached')
      return errorText(error)
    }
  }
}

const fresh = (): Attempt => ({ failures: 0, nextAt: 0, lastError: null })

/** Between half of it and all of it, so that a fleet does not come back in step. */
const jittered = (ms: number): number => Math.ceil(ms * (0.5 + Math.random() / 2))
