import type { KadDHT } from '@libp2p/kad-dht'

import type { MachineId } from '../protocol/ids.ts'
import type { RecordJudge } from './dht-record.ts'
import { guardHashTable, putValue, valuesOf } from './libp2p/dht.ts'

/** `server` keeps records for others, `client` asks for them and has its own kept. */
export type DhtMode = 'off' | 'client' | 'server'

/** This machine's part in the hash table of cards, as long as its libp2p runs. */
export class HashTable {
  /** What libp2p is started with; null: no part. */
  readonly options: { readonly judge: RecordJudge; readonly server: boolean } | null
  #dht: KadDHT | null = null

  constructor(components: { judge?: RecordJudge }, init: { mode: DhtMode }) {
    const { judge } = components
    this.options = judge === undefined || init.mode === 'off' ? null : { judge, server: init.mode === 'server' }
  }

  /** Before libp2p's start. `mayAsk` is asked about each question of a peer. */
  attach(dht: KadDHT | undefined, mayAsk: (machineId: MachineId) => boolean): void {
    this.#dht = dht ?? null
    if (dht !== undefined) guardHashTable(dht, mayAsk)
  }

  /** Every value under this key that was believed, as they come. */
  async *recordsOf(key: Uint8Array, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    if (this.#dht !== null) yield* valuesOf(this.#dht, key, signal)
  }

  /** Puts a value to the machines nearest to the key. */
  async put(key: Uint8Array, value: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.#dht !== null) await putValue(this.#dht, key, value, signal)
  }
}
