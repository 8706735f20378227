import { MemoryDatastore } from 'datastore-core'
import { BoundedMap } from '../../base/bounded.ts'
import { type RecordJudge, agentOfKey } from '../dht-record.ts'

/** Records of the hash table that we keep for others, 6 KB each, beside those of named agents. The engine itself has no bound. */
export const MAX_RECORDS = 1_024
/** Where libp2p's store of peers puts its entries, which `forgetGonePeers` bounds. Whatever else comes is the engine's. */
const PEERS = '/peers/'

type Call<Name extends 'delete' | 'get' | 'has' | 'put'> = Parameters<MemoryDatastore[Name]>

/** What libp2p keeps, in memory. Records of named agents are kept apart; of the rest the source with most makes room. */
export class RecordStore extends MemoryDatastore {
  readonly #judge: Pick<RecordJudge, 'isNamed' | 'source'>
  readonly #records: BoundedMap<string, Uint8Array>

  constructor(components: { judge: Pick<RecordJudge, 'isNamed' | 'source'> }) {
    super()
    this.#judge = components.judge
    this.#records = new BoundedMap({ max: MAX_RECORDS, isApart: (_, record) => this.#isNamed(record) })
  }

  get count(): number {
    return this.#records.size
  }

  override delete(...[key, options]: Call<'delete'>): ReturnType<MemoryDatastore['delete']> {
    return this.#records.delete(key.toString()) ? undefined : super.delete(key, options)
  }

  override get(...[key, options]: Call<'get'>): ReturnType<MemoryDatastore['get']> {
    return this.#records.get(key.toString()) ?? super.get(key, options)
  }

  override has(...[key, options]: Call<'has'>): ReturnType<MemoryDatastore['has']> {
    return this.#records.has(key.toString()) || super.has(key, options)
  }

  override put(...[key, value, options]: Call<'put'>): ReturnType<MemoryDatastore['put']> {
    const name = key.toString()
    if (name.startsWith(PEERS)) return super.put(key, value, options)
    this.#records.set(name, value, this.#judge.source)
    return key
  }

  /** The engine writes a record as protobuf, which begins with a field that is the key. */
  #isNamed(record: Uint8Array): boolean {
    const agentId = agentOfKey(record.subarray(2, 2 + (record[1] ?? 0)))
    return agentId !== null && this.#judge.isNamed(agentId)
  }
}
