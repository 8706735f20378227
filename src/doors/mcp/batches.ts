import { MAX_MCP_BACKLOG } from '../../protocol/limits/tools.ts'

/** The last version of the Model Context Protocol that requires batches of JSON-RPC. */
export const BATCH_VERSION = '2025-03-26'
/** Maximum number of messages in one batch. */
export const MAX_MCP_BATCH = 100

interface Batch {
  readonly waiting: Set<string | number>
  answers: string[]
  bytes: number
}

/** Collects the answers to batches, each batch as one array. One that grows large is answered in several arrays. */
export class Batches {
  readonly #byId = new Map<string | number, Batch>()

  /** Registers the requests of one batch. */
  open(ids: readonly (string | number)[]): void {
    const batch = { waiting: new Set(ids), answers: [], bytes: 0 }
    for (const id of ids) this.#byId.set(id, batch)
  }

  /** Returns what to write now: the answer, an array of answers, or null. */
  answer(id: string | number, text: string): string | null {
    const batch = this.#byId.get(id)
    if (batch === undefined) return text
    batch.answers.push(text)
    batch.bytes += text.length
    return this.#leave(id, batch)
  }

  /** Removes a request that gets no answer. */
  drop(id: string | number): string | null {
    const batch = this.#byId.get(id)
    return batch === undefined ? null : this.#leave(id, batch)
  }

  #leave(id: string | number, batch: Batch): string | null {
    this.#byId.delete(id)
    batch.waiting.delete(id)
    if (batch.answers.length === 0 || (batch.waiting.size > 0 && batch.bytes < MAX_MCP_BACKLOG)) return null
    const text = `[${batch.answers.join(',')}]`
    batch.answers = []
    batch.bytes = 0
    return text
  }
}
