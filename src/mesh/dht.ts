import type { KadDHT } from '@libp2p/kad-dht'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { RateLimit } from '../base/rate-limit.ts'
import type { MachineId } from '../protocol/ids.ts'
import { perMinute } from '../protocol/limits/mesh.ts'
import type { RecordValidator } from './dht-record.ts'
import { guardHashTable, machinesOf, putValue, valuesOf } from './libp2p/dht-inside.ts'
import { RecordStore, type TableInit } from './libp2p/dht.ts'
import type { DhtDialer } from './libp2p/dht-dialer.ts'

/**
 * Rate limit of the records that one source may store here. A host with many daemons needs the burst. Each daemon has one record and stores
 * it twice an hour. Without the limit, invented agents could evict all records within seconds.
 */
export const RECORDS_AT_ONCE = 64
export const RECORDS_PER_MINUTE = 4

/** `server` stores records for others. `client` only looks them up and has its own stored. */
export type DhtMode = 'off' | 'client' | 'server'

/** Rules of the DHT about a peer. */
export interface TableView {
  /** Whether this peer may send a request now. */
  mayAsk(machineId: MachineId): boolean
  /** The source by which rate limits count it, or null if it is not connected. */
  sourceOf(machineId: MachineId): string | null
}

/** This machine's part in the DHT of cards. */
export class Dht {
  /** Options for libp2p, or null without DHT. */
  readonly options: (TableInit & { readonly store: RecordStore }) | null
  /** Addresses of a known machine from presences, cards and configuration. The DHT dials it only there. */
  addressesOf: (machineId: MachineId) => readonly string[] = () => []
  /** Called when a known machine has connected that is a DHT server. */
  onServer: () => void = () => undefined
  readonly #puts: RateLimit
  #dht: KadDHT | null = null
  #view: TableView | null = null

  constructor(components: { validator?: RecordValidator; clock: Pick<Clock, 'monotonic'> }, init: { mode: DhtMode }) {
    const { validator } = components
    this.#puts = new RateLimit(components, { ...perMinute(RECORDS_PER_MINUTE), burst: RECORDS_AT_ONCE })
    this.options =
      validator === undefined || init.mode === 'off'
        ? null
        : { validator, server: init.mode === 'server', store: new RecordStore({ validator }) }
  }

  /** The options, with the dialler for DHT lookups. */
  startOptions(ways: DhtDialer): Dht['options'] {
    return this.options && { ...this.options, ways }
  }

  /** Call it before libp2p's start. `view` is asked before each request of a peer is handled. */
  attach(dht: KadDHT | undefined, view: TableView): void {
    this.#dht = dht ?? null
    this.#view = view
    const validator = this.options?.validator
    if (dht === undefined || validator === undefined) return
    guardHashTable(dht, async (machineId, keep, answer) => {
      const source = view.sourceOf(machineId)
      if (source === null || !view.mayAsk(machineId) || (keep && !this.mayPut(source)))
        throw new AppError('rate_limited', 'too many DHT look-ups')
      return validator.from(source, answer)
    })
  }

  /** Mode, machines in the routing table, connected ones, and stored records with the own one, for `/diagnostics/mesh`. */
  diagnostics(): { mode: DhtMode; peers: number; connected: number; records: number } {
    const { options } = this
    const machines = this.#dht === null ? [] : machinesOf(this.#dht)
    const connected = machines.filter((machineId) => (this.#view?.sourceOf(machineId) ?? null) !== null).length
    const mode = options === null ? 'off' : options.server ? 'server' : 'client'
    return { mode, peers: machines.length, connected, records: options?.store.count ?? 0 }
  }

  /** Whether one more record of this source is stored. */
  mayPut(source: string): boolean {
    return this.#puts.allows(source)
  }

  /** All valid values under this key, as they arrive. */
  async *recordsOf(key: Uint8Array, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    if (this.#dht !== null) yield* valuesOf(this.#dht, key, signal)
  }

  /** Stores a value on the machines nearest to the key. Returns how many accepted it. */
  async put(key: Uint8Array, value: Uint8Array, signal: AbortSignal): Promise<number> {
    return this.#dht === null ? 0 : putValue(this.#dht, key, value, signal)
  }
}
