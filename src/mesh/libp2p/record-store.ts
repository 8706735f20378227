import { MemoryDatastore } from 'datastore-core'

/** Records of the hash table that we keep for others, 6 KB each. The engine itself has no bound. */
export const MAX_RECORDS = 1_024
/** Where libp2p's store of peers puts its entries, which `forgetGonePeers` bounds. Whatever else comes is the engine's. */
const PEERS = '/peers/'

type Put = Parameters<MemoryDatastore['put']>

/** What libp2p keeps, in memory. Of records the oldest makes room. */
export class RecordStore extends MemoryDatastore {
  /** The oldest first. */
  readonly #records = new Map<string, Put[0]>()

  get count(): number {
    return this.#records.size
  }

  override delete(...[key, options]: Parameters<MemoryDatastore['delete']>): ReturnType<MemoryDatastore['delete']> {
    this.#records.delete(key.toString())
    return super.delete(key, options)
  }

  override put(...[key, value, options]: Put): ReturnType<MemoryDatastore['put']> {
    const name = key.toString()
    if (!name.startsWith(PEERS)) {
      this.#records.delete(name)
      this.#records.set(name, key)
      const [oldest] = this.#records
      if (oldest !== undefined && this.#records.size > MAX_RECORDS) {
        void this.delete(oldest[1])
      }
    }
    return super.put(key, value, options)
  }
}
