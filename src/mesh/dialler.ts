import type { Connection } from '@libp2p/interface'
import { type Multiaddr, multiaddr } from '@multiformats/multiaddr'
import { setTimeout as sleep } from 'node:timers/promises'
import { unlessAborted } from '../base/abort.ts'
import { BoundedMap } from '../base/bounded-collections.ts'
import { AppError, errorText } from '../base/errors.ts'
import { Semaphore } from '../base/semaphore.ts'
import { type MachineId, shortId } from '../protocol/ids.ts'
import { RELAYED_DIAL_AFTER_MS } from '../protocol/limits/mesh.ts'
import {
  ADDRESS_DIAL_MS,
  DIAL_MS,
  MAX_CONNECTIONS,
  MAX_DIAL_ADDRESSES,
  MAX_PARALLEL_DIALS,
  MAX_UNAWAITED_DIALS,
} from '../protocol/limits/wire.ts'
import { hostOfText, machineIdOf, parseAddress, relayOfText } from './addresses.ts'

interface Dials {
  awaited: number
  /** Each with the controller that aborts it. */
  readonly background: Map<AbortController, Promise<unknown>>
}

/**
 * Gives dials for waiting callers precedence over background dials. libp2p merges concurrent dials of one machine. A run that resumes
 * within its lease would then wait for a background dial to an address that never answers. So a background dial does not start while the
 * machine is dialled for a waiting caller, and is aborted when such a dial starts.
 */
export class DialPrecedence {
  readonly #dials = new Map<MachineId, Dials>()

  /** Dials for a waiting caller. Throws the signal's reason if that aborts before the background dials have ended. */
  async awaited<T>(machineId: MachineId, signal: AbortSignal, dial: () => Promise<T>): Promise<T> {
    return this.#within(machineId, async (dials) => {
      dials.awaited += 1
      try {
        for (const given of dials.background.keys()) given.abort(yielded())
        await unlessAborted(Promise.allSettled(dials.background.values()), signal)
        return await dial()
      } finally {
        dials.awaited -= 1
      }
    })
  }

  /** Dials in the background. Throws `conflict` if it has to yield. */
  async background<T>(machineId: MachineId, dial: (given: AbortSignal) => Promise<T>): Promise<T> {
    return this.#within(machineId, async ({ awaited, background }) => {
      if (awaited > 0) throw yielded()
      const given = new AbortController()
      const dialled = dial(given.signal)
      background.set(given, dialled)
      try {
        return await dialled
      } finally {
        background.delete(given)
      }
    })
  }

  async #within<T>(machineId: MachineId, work: (dials: Dials) => Promise<T>): Promise<T> {
    const dials: Dials = this.#dials.get(machineId) ?? { awaited: 0, background: new Map() }
    this.#dials.set(machineId, dials)
    try {
      return await work(dials)
    } finally {
      if (dials.awaited === 0 && dials.background.size === 0) this.#dials.delete(machineId)
    }
  }
}

const yielded = (): AppError => new AppError('conflict', 'a waiting request dials it')

/** Why an address of a peer did not answer. */
export interface DialFailure {
  readonly address: string
  readonly error: string
}

/** How addresses are tried. */
export interface DialOptions {
  /** Time limit for each address except the one that answered last, or the last one if no address has answered. */
  readonly othersMs?: number | undefined
  /** Makes another connection even if one exists. */
  readonly force?: boolean
  /** A dial that no caller waits for, see `DialPrecedence`. */
  readonly background?: boolean | undefined
}

export interface DiallerComponents {
  /** libp2p's dial. */
  dial(machineId: MachineId, address: Multiaddr, options: { signal: AbortSignal; force: boolean }): Promise<Connection>
  /** Dial of the relay transport. libp2p's own queue would put it after the direct addresses of the same machine. */
  dialRelayed(address: Multiaddr, options: { signal: AbortSignal }): Promise<Connection>
  /** See `MeshNode.isKnown`. */
  isKnown(machineId: MachineId): boolean
  /** Addresses on which this machine listens. */
  ownAddresses(): readonly string[]
}

/** Tries the addresses of a machine one after the other, starting with the one that answered last. */
export class Dialler {
  readonly #components: DiallerComponents
  /** Last address of each known machine. Not of others, because a host of the local network can cause dials of any number of machines. */
  readonly #reached = new BoundedMap<MachineId, string>({ max: MAX_CONNECTIONS })
  /** A separate queue, because in libp2p's queue the time limit of a dial would already run. */
  readonly #dialling = new Semaphore({ limit: MAX_PARALLEL_DIALS })
  readonly #background = new Semaphore({ limit: MAX_UNAWAITED_DIALS })
  readonly #precedence = new DialPrecedence()

  constructor(components: DiallerComponents) {
    this.#components = components
  }

  /** Connects to the first address at which this machine answers. Throws `peer_unreachable` with the error of each address, and `conflict` if it had to yield. */
  async dial(machineId: MachineId, addresses: readonly string[], signal: AbortSignal, options: DialOptions = {}): Promise<Connection> {
    const dialAny = async (limit: AbortSignal): Promise<Connection> => this.#dialAny(machineId, addresses, limit, options)
    if (options.background !== true)
      return this.#dialling.use(signal, async () => this.#precedence.awaited(machineId, signal, async () => dialAny(signal)))
    const inBackground = async (): Promise<Connection> =>
      this.#precedence.background(machineId, async (given) => dialAny(AbortSignal.any([signal, given])))
    return this.#background.use(signal, async () => this.#dialling.use(signal, inBackground))
  }

  async #dialAny(machineId: MachineId, addresses: readonly string[], signal: AbortSignal, options: DialOptions): Promise<Connection> {
    const { othersMs = ADDRESS_DIAL_MS, force = false } = options
    const failures: DialFailure[] = []
    const limit = AbortSignal.any([signal, AbortSignal.timeout(DIAL_MS)])
    const ordered = this.#ordered(machineId, addresses)
    const tries: Tries = { machineId, failures, limit, force, othersMs }
    const [direct, relayed] = [
      ordered.filter((address) => relayOfText(address) === null),
      ordered.filter((address) => relayOfText(address) !== null),
    ]
    const found = await (relayed.length === 0 ? this.#inTurn(direct, tries) : this.#eitherWay(direct, relayed, tries))
    if (found !== null) return found
    signal.throwIfAborted()
    throw unreachable(machineId, failures)
  }

  /** Tries direct and relayed addresses in parallel, because unreachable networks use up their whole time limit. The first connection aborts the other attempts, which would otherwise keep dial slots. */
  async #eitherWay(direct: readonly string[], relayed: readonly string[], tries: Tries): Promise<Connection | null> {
    const over = new AbortController()
    const either: Tries = { ...tries, limit: AbortSignal.any([tries.limit, over.signal]) }
    try {
      return await this.#firstOf(direct, relayed, either)
    } finally {
      over.abort(new AppError('conflict', 'another address answered first'))
    }
  }

  async #firstOf(direct: readonly string[], relayed: readonly string[], tries: Tries): Promise<Connection | null> {
    const directly = this.#inTurn(direct, tries)
    const headStart = sleep(RELAYED_DIAL_AFTER_MS, null, { ref: false })
    const first = await Promise.race([directly, headStart])
    if (first !== null) return first
    const byRelay = this.#inTurn(relayed, tries)
    return (await Promise.race([directly, byRelay])) ?? (await directly) ?? byRelay
  }

  /** Returns the first connection of these addresses. */
  async #inTurn(addresses: readonly string[], { machineId, failures, limit, force, othersMs }: Tries): Promise<Connection | null> {
    // Before any address has answered, the last one gets the full time, because it delays no other.
    const mainly = addresses.find((address) => address === this.#reached.get(machineId)) ?? addresses.at(-1)
    for (const address of addresses) {
      if (limit.aborted) break
      try {
        const late = AbortSignal.timeout(address === mainly ? ADDRESS_DIAL_MS : othersMs)
        return await this.#dialOne(machineId, address, { signal: AbortSignal.any([limit, late]), force })
      } catch (error) {
        failures.push({ address, error: dialErrorText(error) })
      }
    }
    return null
  }

  /** The address that answered last comes first, so that a reconnect does not wait for an old one. */
  #ordered(machineId: MachineId, addresses: readonly string[]): string[] {
    const known = new Set(addresses)
    const reached = this.#reached.get(machineId)
    const ordered = reached !== undefined && known.has(reached) ? new Set([reached, ...known]) : known
    return [...ordered].slice(0, MAX_DIAL_ADDRESSES)
  }

  async #dialOne(machineId: MachineId, address: string, options: { signal: AbortSignal; force: boolean }): Promise<Connection> {
    const connection = await this.#connect(machineId, address, options)
    if (machineIdOf(connection.remotePeer) !== machineId) {
      connection.abort(new AppError('peer_rejected', 'another machine answers at this address'))
      throw new AppError('peer_rejected', 'another machine answers at this address')
    }
    if (this.#components.isKnown(machineId)) this.#reached.set(machineId, address)
    return connection
  }

  async #connect(machineId: MachineId, text: string, options: { signal: AbortSignal; force: boolean }): Promise<Connection> {
    const address = parseAddress(text)
    if (address?.machineId !== machineId) throw new AppError('bad_request', 'not an address of this machine')
    // The failed handshake would count as a violation of this machine's own host.
    if (this.#isOwn(text)) throw new AppError('peer_rejected', 'this machine itself listens at this address')
    if (address.relay === null) return this.#components.dial(machineId, multiaddr(text), options)
    // A card may name any relay, and using one means a connection to it.
    if (!this.#components.isKnown(address.relay)) throw new AppError('peer_rejected', 'the relay is not a contact: import its card')
    return this.#components.dialRelayed(multiaddr(text), options)
  }

  /** A DNS name may resolve to several machines, so it never counts as an own address. */
  #isOwn(text: string): boolean {
    return hostOfText(text) !== null && this.#components.ownAddresses().some((own) => endpointOf(own) === endpointOf(text))
  }
}

/** An address without its peer ID. */
const endpointOf = (address: string): string => multiaddr(address).toString().split('/p2p/')[0]!

/** Noise's error if the peer proved another key. It has no error name. */
const ANOTHER_KEY = /^Payload identity key \S+ does not match expected remote identity key/

const dialErrorText = (error: unknown): string => {
  const text = errorText(error)
  return ANOTHER_KEY.test(text) ? 'another machine answers at this address' : text
}

/** Common options and results of all addresses of one dial. */
interface Tries {
  readonly machineId: MachineId
  /** Filled while addresses fail. */
  readonly failures: DialFailure[]
  readonly limit: AbortSignal
  readonly force: boolean
  readonly othersMs: number
}

const unreachable = (machineId: MachineId, addresses: readonly DialFailure[]): AppError => {
  const tried = addresses.map(({ address, error }) => `${address}: ${error}`)
  const message = tried.length === 0 ? `no address is known for machine ${shortId(machineId)}` : `no address answered: ${tried.join('; ')}`
  return new AppError('peer_unreachable', message, { data: { machine_id: machineId, addresses } })
}
