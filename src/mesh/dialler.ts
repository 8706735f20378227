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
  /** Each with what ends it. */
  readonly background: Map<AbortController, Promise<unknown>>
}

/**
 * libp2p makes one of all dials of a machine that go on at once. A run that comes back within its lease would wait there for an
 * address that never answers, for as long as whoever keeps connections can. So a dial for which nobody waits gives way: it
 * does not begin beside another one of its machine, and ends when such a one begins.
 */
export class DialPrecedence {
  readonly #dials = new Map<MachineId, Dials>()

  /** Throws the signal's reason where that is aborted before what gives way has ended. */
  async awaited<T>(machineId: MachineId, signal: AbortSignal, dial: () => Promise<T>): Promise<T> {
    return this.#within(machineId, async (dials) => {
      dials.awaited += 1
      try {
        for (const given of dials.background.keys()) given.abort(gaveWay())
        await unlessAborted(Promise.allSettled(dials.background.values()), signal)
        return await dial()
      } finally {
        dials.awaited -= 1
      }
    })
  }

  /** Throws `conflict` where it gives way. */
  async background<T>(machineId: MachineId, dial: (given: AbortSignal) => Promise<T>): Promise<T> {
    return this.#within(machineId, async ({ awaited, background }) => {
      if (awaited > 0) throw gaveWay()
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

const gaveWay = (): AppError => new AppError('conflict', 'it is dialled for somebody who waits')

/** Why an address of a peer did not answer. */
export interface DialFailure {
  readonly address: string
  readonly error: string
}

/** How addresses are tried. */
export interface DialOptions {
  /** How long each may take that is not the one which answered last, or the last of all where none has. */
  readonly othersMs?: number | undefined
  /** A connection besides those that there are. */
  readonly force?: boolean
  /** Nobody waits for it: see `DialPrecedence`. */
  readonly background?: boolean | undefined
}

export interface DiallerComponents {
  /** Of libp2p. */
  dial(machineId: MachineId, address: Multiaddr, options: { signal: AbortSignal; force: boolean }): Promise<Connection>
  /** Of its transport through relays: libp2p's own queue would put it behind the direct addresses of the same machine. */
  dialRelayed(address: Multiaddr, options: { signal: AbortSignal }): Promise<Connection>
  /** Of `MeshNode`. */
  isKnown(machineId: MachineId): boolean
  /** Where this machine listens. */
  ownAddresses(): readonly string[]
}

/** Tries the addresses of a machine, one after the other, beginning with the one that answered the last time. */
export class Dialler {
  readonly #components: DiallerComponents
  /** Of known machines only: a host of the local network can have us dial any number of others. */
  readonly #reached = new BoundedMap<MachineId, string>({ max: MAX_CONNECTIONS })
  /** Here and not in libp2p's own queue, where the time of who waits would run out. */
  readonly #dialling = new Semaphore({ limit: MAX_PARALLEL_DIALS })
  readonly #background = new Semaphore({ limit: MAX_UNAWAITED_DIALS })
  readonly #precedence = new DialPrecedence()

  constructor(components: DiallerComponents) {
    this.#components = components
  }

  /** The first address at which this very machine answers. Throws `peer_unreachable` with what came of each, and `conflict` where it gave way. */
  async dial(machineId: MachineId, addresses: readonly string[], signal: AbortSignal, options: DialOptions = {}): Promise<Connection> {
    const dialAny = async (limit: AbortSignal): Promise<Connection> => this.#dialAny(machineId, addresses, limit, options)
    if (options.background !== true)
      return this.#dialling.use(signal, async () => this.#precedence.awaited(machineId, signal, async () => dialAny(signal)))
    const giveWay = async (): Promise<Connection> =>
      this.#precedence.background(machineId, async (given) => dialAny(AbortSignal.any([signal, given])))
    return this.#background.use(signal, async () => this.#dialling.use(signal, giveWay))
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

  /** The addresses of networks where we are not take their whole time, so relayed ones do not wait for them. The first way that answers ends the other: what went on would take turns of those who wait for theirs. */
  async #eitherWay(direct: readonly string[], relayed: readonly string[], tries: Tries): Promise<Connection | null> {
    const over = new AbortController()
    const either: Tries = { ...tries, limit: AbortSignal.any([tries.limit, over.signal]) }
    try {
      return await this.#firstOf(direct, relayed, either)
    } finally {
      over.abort(new AppError('conflict', 'another way has answered'))
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

  /** The first of these that answers. */
  async #inTurn(addresses: readonly string[], { machineId, failures, limit, force, othersMs }: Tries): Promise<Connection | null> {
    // Where none has answered yet, nothing is kept waiting by the last.
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

  /** A connection that was lost comes back without waiting for an address that is old. */
  #ordered(machineId: MachineId, addresses: readonly string[]): string[] {
    const known = new Set(addresses)
    const reached = this.#reached.get(machineId)
    const ordered = reached !== undefined && known.has(reached) ? new Set([reached, ...known]) : known
    return [...ordered].slice(0, MAX_DIAL_ADDRESSES)
  }

  async #dialOne(machineId: MachineId, address: string, options: { signal: AbortSignal; force: boolean }): Promise<Connection> {
    const connection = await this.#connect(machineId, address, options)
    if (machineIdOf(connection.remotePeer) !== machineId) {
      connection.abort(new AppError('peer_rejected', 'another machine answers there'))
      throw new AppError('peer_rejected', 'another machine answers there')
    }
    if (this.#components.isKnown(machineId)) this.#reached.set(machineId, address)
    return connection
  }

  async #connect(machineId: MachineId, text: string, options: { signal: AbortSignal; force: boolean }): Promise<Connection> {
    const address = parseAddress(text)
    if (address?.machineId !== machineId) throw new AppError('bad_request', 'not an address of this machine that we can dial')
    // The failed handshake would count as an offence of this machine's own host.
    if (this.#isOwn(text)) throw new AppError('peer_rejected', 'this machine itself listens at this address')
    if (address.relay === null) return this.#components.dial(machineId, multiaddr(text), options)
    // A card may name any relay, and to use one is to keep a connection to it.
    if (!this.#components.isKnown(address.relay)) throw new AppError('peer_rejected', 'the relay is nobody whom we know: import its card')
    return this.#components.dialRelayed(multiaddr(text), options)
  }

  /** A DNS name may stand for several machines, so it counts as no address of this one. */
  #isOwn(text: string): boolean {
    return hostOfText(text) !== null && this.#components.ownAddresses().some((own) => endpointOf(own) === endpointOf(text))
  }
}

/** An address without the machine that must answer there. */
const endpointOf = (address: string): string => multiaddr(address).toString().split('/p2p/')[0]!

/** Of the handshake: whoever answered proved another key than that of the machine. Its error has no name of its own. */
const ANOTHER_KEY = /^Payload identity key \S+ does not match expected remote identity key/

const dialErrorText = (error: unknown): string => {
  const text = errorText(error)
  return ANOTHER_KEY.test(text) ? 'another machine answers at this address' : text
}

/** What all addresses of one dial have in common. */
interface Tries {
  readonly machineId: MachineId
  /** Grows. */
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
