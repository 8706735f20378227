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
import type { RestServices } from './services.ts'
import { type Definitions, type RestRequest, define, errorFields } from './definition.ts'
import { EventStream, MAX_BODY_SHAPE, type StreamFormat, decodeBase64 } from './event-stream.ts'
import { proofOf, traceOf } from './exec-routes.ts'
import { type FanoutRequest, fanoutEvent, fanoutRequest, fanoutResult } from './schemas.ts'
import { MAX_JSON_BODY } from './request-bodies.ts'
import { RetainedOutput, closeSignal, outputHead, streamFormat } from './run-response.ts'

const stdinOf = async ({ stdin_b64 }: FanoutRequest): Promise<FanoutSpec['command']['stdin']> => {
  if (stdin_b64 === undefined) return null
  const bytes = decodeBase64(stdin_b64, 'stdin_b64')
  if (bytes.length > MAX_STDIN_SPOOL) throw new AppError('too_large', `stdin of a fan-out has at most ${MAX_STDIN_SPOOL} bytes`)
  return { bytes, pieces: await pieceHashesInTurns(bytes) }
}

/** Throws `bad_request` if an ID belongs to no host, or two hosts have the same ID. */
const requestIdsOf = ({ request_ids = {} }: FanoutRequest, hosts: readonly FanoutHost[]): ReadonlyMap<string, string> => {
  const ids = new Map(Object.entries(request_ids))
  const known = new Set(hosts.map(({ agent_id }) => agent_id))
  const foreign = [...ids.keys()].find((agent) => !known.has(agent))
  if (foreign !== undefined) throw new AppError('bad_request', `request_ids: ${foreign} is not among the hosts`)
  if (new Set(ids.values()).size < ids.size) throw new AppError('bad_request', 'request_ids: each run needs a different ID')
  return ids
}

/** Throws `bad_request`, `too_large`, and as `selectHosts`. */
export const toFanoutSpec = async (
  body: FanoutRequest,
  { directory }: Pick<RestServices, 'directory'>,
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

/**
 * Serializes the events of many hosts: each host waits until the client has taken the previous event, so that the answer's buffer stays
 * small.
 */
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

/** Streams the events of each host. A slow client pauses the runs and occupies no memory. */
export class StreamedFanout implements FanoutSink {
  readonly #stream: EventStream
  readonly #turns = new OrderedWriter()
  #id: string | null = null

  constructor(stream: EventStream) {
    this.#stream = stream
  }

  asked({ fanout_id, hosts }: FanoutSpec): void {
    this.#id = fanout_id
    for (let at = 0; at < hosts.length; at += FANOUT_HOSTS_PER_EVENT) {
      const some = hosts.slice(at, at + FANOUT_HOSTS_PER_EVENT).map(({ host, agent_id }) => ({ host, agent_id }))
      const more = at + some.length < hosts.length
      void this.#send({ type: 'fanout', fanout_id, hosts: some, ...(more && { more }) })
    }
  }

  /** Resolves when the event has left this process: the client must learn the request ID before the run begins. */
  async begun({ host }: FanoutHost, request_id: RequestId): Promise<void> {
    await new Promise<void>((left) => void this.#send({ type: 'begun', host, request_id }, left))
  }

  event({ host }: FanoutHost, event: RunEvent): void | Promise<void> {
    if (!('data' in event)) return this.#send({ ...event, host })
    return this.#turns.write(() =>
      this.#stream.sendText(`${outputHead(event)},"host":${jsonText(host)},"data_b64":"${toBase64(event.data)}"}`),
    )
  }

  ended(host: FanoutHostJson): void | Promise<void> {
    return this.#send({ type: 'host', ...host })
  }

  hurry(): void {
    this.#stream.hurry(FANOUT_READER_MS)
  }

  async end(ledger: FanoutLedgerJson): Promise<void> {
    await this.#hangUp({ type: 'ledger', ...ledger })
  }

  /** Reports an error as the last line of a stream that has begun. Returns false if no status line was sent. */
  fail(error: unknown): boolean {
    if (!this.#stream.begun) return false
    void this.#hangUp({ type: 'error', fanout_id: this.#id, ...errorFields(error) })
    return true
  }

  async #hangUp(last: FanoutEventJson): Promise<void> {
    await this.#send(last)
    this.#stream.end()
  }

  #send(event: FanoutEventJson, left?: () => void): void | Promise<void> {
    return this.#turns.write(() => this.#stream.send(event, left))
  }
}

/** Collects the output of all hosts for one JSON answer. Each host has an equal share of the output limit of one run. */
export class AggregatedFanout implements FanoutSink {
  readonly #outputs = new Map<string, RetainedOutput>()
  readonly #hosts: FanoutHostResultJson[] = []
  #maxPerHost = 0

  asked({ hosts }: FanoutSpec): void {
    this.#maxPerHost = Math.floor(MAX_AGGREGATED_OUTPUT / hosts.length)
  }

  /** The result lists each host with its end. */
  begun(): void {}

  event({ agent_id }: FanoutHost, event: RunEvent): void {
    const output = this.#outputs.get(agent_id) ?? new RetainedOutput({ max: this.#maxPerHost })
    this.#outputs.set(agent_id, output)
    output.event(event)
  }

  ended(host: FanoutHostJson): void {
    const output = this.#outputs.get(host.agent_id) ?? new RetainedOutput({ max: 0 })
    this.#outputs.delete(host.agent_id)
    this.#hosts.push({ ...host, ...output.cut(host), ...output.base64 })
  }

  /** No client reads before all hosts have ended. */
  hurry(): void {}

  result({ fanout_id }: FanoutLedgerJson): FanoutResultJson {
    // Output that exceeded the share is marked as truncated.
    return { ...sumsOf(fanout_id, this.#hosts), hosts: this.#hosts }
  }
}

/** NDJSON is the default. Null means one JSON object at the end. */
export const fanoutFormat = (accept: string | undefined): StreamFormat | null => {
  const format = streamFormat(accept)
  if (format === 'raw') return 'ndjson'
  return format === null && accept?.toLowerCase().includes('application/json') !== true ? 'ndjson' : format
}

/** The request also names hosts and a request ID for each. */
const BODY_VALUES = MAX_BODY_SHAPE.values + 2 * MAX_FANOUT_HOSTS

export const fanoutRoutes = (services: RestServices) =>
  ({
    'POST /exec/fanout': define({
      body: fanoutRequest,
      response: fanoutResult,
      streams: { 'application/x-ndjson': fanoutEvent, 'text/event-stream': fanoutEvent },
      bodyLimit: MAX_JSON_BODY,
      bodyValues: BODY_VALUES,
      checkRoom: () => services.fanouts.checkRoom(),
      proof: 'taken',
      handle: async (request, reply) => fanOut(services, request, reply),
    }),
  }) satisfies Definitions

const fanOut = async (services: RestServices, request: RestRequest<FanoutRequest>, reply: FastifyReply): Promise<unknown> => {
  const signal = closeSignal(reply)
  const spec = await toFanoutSpec(request.body, services, { proof: proofOf(services, request), ...traceOf(request) })
  const format = fanoutFormat(request.headers.accept)
  if (format === null) {
    const sink = new AggregatedFanout()
    return sink.result(await services.fanouts.run(spec, sink, signal))
  }
  const sink = new StreamedFanout(new EventStream({ reply, clock: services.clock }, { format }))
  try {
    await sink.end(await services.fanouts.run(spec, sink, signal))
  } catch (error) {
    if (!sink.fail(error)) throw error
  }
  return reply
}
