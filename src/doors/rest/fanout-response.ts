import type { FanoutSink, FanoutSpec } from '../../exec/fleet/fanouts.ts'
import type { FanoutHost } from '../../exec/fleet/host-end.ts'
import type { RunEvent } from '../../exec/run-spec.ts'
import { FANOUT_HOSTS_PER_EVENT, FANOUT_READER_MS } from '../../protocol/fanout-limits.ts'
import {
  type FanoutEventJson,
  type FanoutHostJson,
  type FanoutHostResultJson,
  type FanoutLedgerJson,
  type FanoutResultJson,
  sumsOf,
} from '../../protocol/fanout.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_AGGREGATED_OUTPUT } from '../../protocol/limits.ts'
import { jsonText } from '../../protocol/lines.ts'
import { toBase64 } from '../../protocol/text.ts'
import { errorFields } from './error-fields.ts'
import type { EventStream, StreamFormat } from './event-stream.ts'
import { KeptOutput, outputHead, streamFormat } from './run-response.ts'

/** Many hosts write to one reader, each when those before it have been taken: what waits is held there and not in the answer's buffer. */
class InTurn {
  #last: Promise<void> | null = null

  write(work: () => void | Promise<void>): void | Promise<void> {
    const written = this.#last === null ? work() : this.#last.then(work)
    if (written === undefined) return undefined
    const turn = written.finally(() => {
      if (this.#last === turn) this.#last = null
    })
    this.#last = turn
    return turn
  }
}

/** Writes what becomes of each host as it comes; a reader that is behind holds the runs, not our memory. */
export class StreamedFanout implements FanoutSink {
  readonly #stream: EventStream
  readonly #turns = new InTurn()
  #id: string | null = null

  constructor(components: { stream: EventStream }) {
    this.#stream = components.stream
  }

  asked({ fanout_id, hosts }: FanoutSpec): void {
    this.#id = fanout_id
    for (let at = 0; at < hosts.length; at += FANOUT_HOSTS_PER_EVENT) {
      const some = hosts.slice(at, at + FANOUT_HOSTS_PER_EVENT).map(({ host, agent_id }) => ({ host, agent_id }))
      const more = at + some.length < hosts.length
      void this.#say({ type: 'fanout', fanout_id, hosts: some, ...(more && { more }) })
    }
  }

  /** What waits in this process for a reader that is behind would be lost with it. */
  async begun({ host }: FanoutHost, request_id: RequestId): Promise<void> {
    await new Promise<void>((left) => void this.#say({ type: 'begun', host, request_id }, left))
  }

  event({ host }: FanoutHost, event: RunEvent): void | Promise<void> {
    if (!('data' in event)) return this.#say({ ...event, host })
    return this.#turns.write(() =>
      this.#stream.sendText(`${outputHead(event)},"host":${jsonText(host)},"data_b64":"${toBase64(event.data)}"}`),
    )
  }

  ended(host: FanoutHostJson): void | Promise<void> {
    return this.#say({ type: 'host', ...host })
  }

  hurry(): void {
    this.#stream.hurry(FANOUT_READER_MS)
  }

  async end(ledger: FanoutLedgerJson): Promise<void> {
    await this.#hangUp({ type: 'ledger', ...ledger })
  }

  /** As of a run: an error after the head went out is the last line. False = nothing went out yet. */
  fail(error: unknown): boolean {
    if (!this.#stream.begun) return false
    void this.#hangUp({ type: 'error', fanout_id: this.#id, ...errorFields(error) })
    return true
  }

  async #hangUp(last: FanoutEventJson): Promise<void> {
    await this.#say(last)
    this.#stream.end()
  }

  #say(event: FanoutEventJson, left?: () => void): void | Promise<void> {
    return this.#turns.write(() => this.#stream.send(event, left))
  }
}

/** Keeps what hosts write for one JSON answer: each has the same part of what one run may have. */
export class AggregatedFanout implements FanoutSink {
  readonly #outputs = new Map<string, KeptOutput>()
  readonly #hosts: FanoutHostResultJson[] = []
  #room = 0

  asked({ hosts }: FanoutSpec): void {
    this.#room = Math.floor(MAX_AGGREGATED_OUTPUT / hosts.length)
  }

  begun(): void {
    // What was begun is in the answer with how it ended.
  }

  event({ agent_id }: FanoutHost, event: RunEvent): void {
    const output = this.#outputs.get(agent_id) ?? new KeptOutput({ max: this.#room })
    this.#outputs.set(agent_id, output)
    output.event(event)
  }

  ended(host: FanoutHostJson): void {
    const output = this.#outputs.get(host.agent_id) ?? new KeptOutput({ max: 0 })
    this.#outputs.delete(host.agent_id)
    this.#hosts.push({ ...host, ...output.cut(host), ...output.base64 })
  }

  hurry(): void {
    // Nothing is read before all have ended.
  }

  result({ fanout_id }: FanoutLedgerJson): FanoutResultJson {
    // What did not fit into the answer is cut, and counts as that.
    return { ...sumsOf(fanout_id, this.#hosts), hosts: this.#hosts }
  }
}

/** Lines, where the Accept header asks for nothing that we have; null = one JSON object at the end. */
export const fanoutFormat = (accept: string | undefined): StreamFormat | null => {
  const format = streamFormat(accept)
  if (format === 'raw') return 'ndjson'
  return format === null && accept?.toLowerCase().includes('application/json') !== true ? 'ndjson' : format
}
