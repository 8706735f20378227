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

/** Records that one source may have us keep: all at once those of a host full of daemons, and then so many a minute. Each has one, and puts it twice an hour: whoever makes up agents would else push out all that we keep within seconds. */
export const RECORDS_AT_ONCE = 64
export const RECORDS_PER_MINUTE = 4

/** `server` keeps records for others, `client` asks for them and has its own kept. */
export type DhtMode = 'off' | 'client' | 'server'

/** Who asks the table. */
export interface TableView {
  /** Whether this peer may ask now. */
  mayAsk(machineId: MachineId): boolean
  /** By what meters count it; null for one that is not connected any more. */
  sourceOf(machineId: MachineId): string | null
}

/** This machine's part in the hash table of cards, as long as its libp2p runs. */
export class Dht {
  /** What libp2p is started with; null: no part. */
  readonly options: (TableInit & { readonly store: RecordStore }) | null
  /** Where a machine that we know says that it is, or our own files do: there alone it is dialled for the table. */
  addressesOf: (machineId: MachineId) => readonly string[] = () => []
  /** Called when a machine that we know has connected and keeps records for others. */
  onServer: () => void = () => undefined
  readonly #puts: RateLimit
  #dht: KadDHT | null = null
  #view: TableView | null = null

  constructor(components: { judge?: RecordValidator; clock: Pick<Clock, 'monotonic'> }, init: { mode: DhtMode }) {
    const { judge } = components
    this.#puts = new RateLimit(components, { ...perMinute(RECORDS_PER_MINUTE), burst: RECORDS_AT_ONCE })
    this.options =
      judge === undefined || init.mode === 'off' ? null : { judge, server: init.mode === 'server', store: new RecordStore({ judge }) }
  }

  /** The same with what dials for it. */
  startOptions(ways: DhtDialer): Dht['options'] {
    return this.options && { ...this.options, ways }
  }

  /** Before libp2p's start. `view` is asked about each question of a peer. */
  attach(dht: KadDHT | undefined, view: TableView): void {
    this.#dht = dht ?? null
    this.#view = view
    const judge = this.options?.judge
    if (dht === undefined || judge === undefined) return
    guardHashTable(dht, async (machineId, keep, answer) => {
      const source = view.sourceOf(machineId)
      if (source === null || !view.mayAsk(machineId) || (keep && !this.mayPut(source)))
        throw new AppError('rate_limited', 'too many questions to the hash table')
      return judge.from(source, answer)
    })
  }

  /** For `/diagnostics/mesh`: the part, the machines that are asked first, how many of these are connected now, and the records that are kept, our own among them. */
  diagnostics(): { mode: DhtMode; peers: number; connected: number; records: number } {
    const { options } = this
    const machines = this.#dht === null ? [] : machinesOf(this.#dht)
    const connected = machines.filter((machineId) => (this.#view?.sourceOf(machineId) ?? null) !== null).length
    const mode = options === null ? 'off' : options.server ? 'server' : 'client'
    return { mode, peers: machines.length, connected, records: options?.store.count ?? 0 }
  }

  /** Whether one more record of this source is kept. */
  mayPut(source: string): boolean {
    return this.#puts.allows(source)
  }

  /** Every value under this key that was believed, as they come. */
  async *recordsOf(key: Uint8Array, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    if (this.#dht !== null) yield* valuesOf(this.#dht, key, signal)
  }

  /** Puts a value to the machines nearest to the key. Answers how many took it. */
  async put(key: Uint8Array, value: Uint8Array, signal: AbortSignal): Promise<number> {
    return this.#dht === null ? 0 : putValue(this.#dht, key, value, signal)
  }
}
