import type { FastifyReply } from 'fastify'
import { AppError } from '../../base/errors.ts'
import type { FanoutSink, FanoutSpec } from '../../exec/fleet/fanouts.ts'
import type { FanoutHost } from '../../exec/fleet/host-end.ts'
import type { RunEvent } from '../../exec/run-spec.ts'
import { pieceHashesInTurns } from '../../identity/piece-hashes.ts'
import { newRequestId } from '../../identity/request-id.ts'
import {
  type FanoutEventJson,
  type FanoutHostJson,
  type FanoutHostResultJson,
  type FanoutLedgerJson,
  type FanoutResultJson,
  failuresAllowed,
  sumsOf,
} from '../../protocol/api/fanout.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { DEFAULT_FANOUT_PARALLEL, FANOUT_HOSTS_PER_EVENT, FANOUT_READER_MS, MAX_FANOUT_HOSTS } from '../../protocol/limits/fleet.ts'
import { MAX_AGGREGATED_OUTPUT, MAX_STDIN_SPOOL } from '../../protocol/limits/wire.ts'
import { jsonText } from '../../protocol/lines.ts'
import { toBase64 } from '../../protocol/text.ts'
import type { RestComponents } from './components.ts'
import { type Definitions, type RestRequest, define, errorFields } from './definition.ts'
import { EventStream, MAX_BODY_SHAPE, type StreamFormat, decodeBase64 } from './event-stream.ts'
import { proofOf, traceOf } from './exec-routes.ts'
import { type FanoutRequest, fanoutEvent, fanoutRequest, fanoutResult } from './fanout-schemas.ts'
import { MAX_JSON_BODY } from './request-bodies.ts'
import { RetainedOutput, callerGone, outputHead, streamFormat } from './run-response.ts'

const stdinOf = async ({ stdin_b64 }: FanoutRequest): Promise<FanoutSpec['command']['stdin']> => {
  if (stdin_b64 === undefined) return null
  const bytes = decodeBase64(stdin_b64, 'stdin_b64')
  if (bytes.length > MAX_STDIN_SPOOL) throw new AppError('too_large', `stdin of a fan-out has at most ${MAX_STDIN_SPOOL} bytes`)
  return { bytes, pieces: await pieceHashesInTurns(bytes) }
}

/** Throws `bad_request` where an id is given to nobody, or to two. */
const requestIdsOf = ({ request_ids = {} }: FanoutRequest, hosts: readonly FanoutHost[]): ReadonlyMap<string, string> => {
  const ids = new Map(Object.entries(request_ids))
  const asked = new Set(hosts.map(({ agent_id }) => agent_id))
  const foreign = [...ids.keys()].find((agent) => !asked.has(agent))
  if (foreign !== undefined) throw new AppError('bad_request', `request_ids: ${foreign} is not among the hosts`)
  if (new Set(ids.values()).size < ids.size) throw new AppError('bad_request', 'request_ids: each run needs an id of its own')
  return ids
}

/** What the body asks for. Throws `bad_request`, `too_large`, and as `selectHosts`. */
export const toFanoutSpec = async (
  body: FanoutRequest,
  { directory }: Pick<RestComponents, 'directory'>,
  more: Pick<FanoutSpec, 'proof'> & Pick<FanoutSpec['command'], 'trace'>,
): Promise<FanoutSpec> => {
  const hosts = directory.select(body.hosts).map(({ host, agent_id }): FanoutHost => ({ host, agent_id }))
  const { trace, proof } = more
  return {
    fanout_id: body.fanout_id ?? newRequestId(),
    hosts,
    parallel: body.parallel ?? DEFAULT_FANOUT_PARALLEL,
    canary: body.canary ?? 0,
    maxFailures: body.max_failures === undefined ? null : failuresAllowed(body.max_failures, hosts.length),
    deadlineMs: body.deadline_ms ?? null,
    proof,
    command: {
      argv: body.argv,
      stdin: await stdinOf(body),
      timeout_ms: body.timeout_ms ?? null,
      cwd: body.cwd ?? null,
      clamp: body.clamp ?? false,
      requestIds: requestIdsOf(body, hosts),
      ...(body.session !== undefined && { session: body.session }),
      ...(trace !== undefined && { trace }),
    },
  }
}

/** Many hosts write to one reader, each when those before it have been taken: what waits is held there and not in the answer's buffer. */
class OrderedWriter {
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
  readonly #turns = new OrderedWriter()
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
  readonly #outputs = new Map<string, RetainedOutput>()
  readonly #hosts: FanoutHostResultJson[] = []
  #room = 0

  asked({ hosts }: FanoutSpec): void {
    this.#room = Math.floor(MAX_AGGREGATED_OUTPUT / hosts.length)
  }

  begun(): void {
    // What was begun is in the answer with how it ended.
  }

  event({ agent_id }: FanoutHost, event: RunEvent): void {
    const output = this.#outputs.get(agent_id) ?? new RetainedOutput({ max: this.#room })
    this.#outputs.set(agent_id, output)
    output.event(event)
  }

  ended(host: FanoutHostJson): void {
    const output = this.#outputs.get(host.agent_id) ?? new RetainedOutput({ max: 0 })
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

/** Words that name hosts, and a request id for each. */
const BODY_VALUES = MAX_BODY_SHAPE.values + 2 * MAX_FANOUT_HOSTS

export const fanoutRoutes = (components: RestComponents) =>
  ({
    'POST /exec/fanout': define({
      body: fanoutRequest,
      response: fanoutResult,
      streams: { 'application/x-ndjson': fanoutEvent, 'text/event-stream': fanoutEvent },
      bodyLimit: MAX_JSON_BODY,
      bodyValues: BODY_VALUES,
      checkRoom: () => components.fanouts.checkRoom(),
      proof: 'taken',
      handle: async (request, reply) => fanOut(components, request, reply),
    }),
  }) satisfies Definitions

const fanOut = async (components: RestComponents, request: RestRequest<FanoutRequest>, reply: FastifyReply): Promise<unknown> => {
  const gone = callerGone(reply)
  const spec = await toFanoutSpec(request.body, components, { proof: proofOf(components, request), ...traceOf(request) })
  const format = fanoutFormat(request.headers.accept)
  if (format === null) {
    const sink = new AggregatedFanout()
    return sink.result(await components.fanouts.run(spec, sink, gone))
  }
  const sink = new StreamedFanout({ stream: new EventStream({ reply, clock: components.clock }, { format }) })
  try {
    await sink.end(await components.fanouts.run(spec, sink, gone))
  } catch (error) {
    if (!sink.fail(error)) throw error
  }
  return reply
}
