import type { FastifyReply } from 'fastify'
import type { Clock } from '../../base/clock.ts'
import { AppError, asAppError, isAppError, nextOf } from '../../base/errors.ts'
import type { AttachProgress, DetachedRunStatus } from '../../exec/detached-runs.ts'
import type { DetachedRunEvent, DetachedSink, DetachedSpec } from '../../exec/detached/detached-types.ts'
import type { AttachedEventJson } from '../../protocol/api/attached-events.ts'
import { type RetainedOutputJson, type DetachedRunView, isOver } from '../../protocol/api/detached-run.ts'
import { RAW_RUN_TYPE } from '../../protocol/api/run-events.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_AGGREGATED_OUTPUT } from '../../protocol/limits/wire.ts'
import { toBase64 } from '../../protocol/text.ts'
import type { RestServices } from './services.ts'
import { type Definitions, type RestRequest, define, errorFields } from './definition.ts'
import {
  type RunRequest,
  attachQuery,
  attachedEvent,
  attachedOutput,
  oneRun,
  rawAttachedEvent,
  runCancel,
  runForget,
  runParams,
  runQuery,
  runs,
  runsQuery,
  runsWait,
  waitedRuns,
} from './schemas.ts'
import { EventStream } from './event-stream.ts'
import { targetOf } from './run-request.ts'
import { AggregatedRun, RetainedOutput, closeSignal, streamFormat } from './run-response.ts'

/** Copies only the fields that clients see. */
export const retainedOutputOf = ({
  bytes_kept,
  bytes_dropped,
  keep_bytes,
  lifetime_left_ms,
  kept_for_ms,
}: RetainedOutputJson): RetainedOutputJson => ({
  bytes_kept,
  bytes_dropped,
  keep_bytes,
  lifetime_left_ms,
  kept_for_ms,
})

/** Collects output for one JSON answer. If the output does not fit, the client continues at `next`. */
export class BufferedAttachOutput implements DetachedSink {
  readonly #output: RetainedOutput
  readonly #full = new AbortController()
  /** Aborts when nothing more fits. */
  readonly full = this.#full.signal
  /** Offset of the first byte that is not retained. */
  next: number

  constructor(init: { from: number; max?: number }) {
    this.next = init.from
    this.#output = new RetainedOutput({ max: init.max ?? MAX_AGGREGATED_OUTPUT })
  }

  event(event: DetachedRunEvent): void {
    if ((event.type !== 'stdout' && event.type !== 'stderr') || this.full.aborted) return
    this.next = event.offset + this.#output.push(event.type, event.data)
    if (this.#output.isFull) this.#full.abort()
  }

  result(request_id: RequestId, { state, from, next, outcome }: AttachProgress): object {
    return { ok: true, request_id, state, from, next, ...this.#output.base64, outcome }
  }
}

/** Writes events as they arrive. A slow client pauses only its own stream from the target. */
export class StreamedOutput implements DetachedSink {
  readonly #stream: EventStream
  readonly #requestId: RequestId
  #next: number

  constructor(stream: EventStream, init: { requestId: RequestId; from: number }) {
    this.#stream = stream
    this.#requestId = init.requestId
    this.#next = init.from
  }

  event(event: DetachedRunEvent): void | Promise<void> {
    const request_id = this.#requestId
    switch (event.type) {
      case 'run_state': {
        const { info, from } = event
        return this.#stream.send({
          type: 'state',
          request_id,
          state: info.state,
          from,
          ...retainedOutputOf(info),
        } satisfies AttachedEventJson)
      }
      case 'stdout':
      case 'stderr': {
        const { type, offset, data } = event
        this.#next = offset + data.length
        const head = `{"type":"${type}","request_id":"${request_id}","offset":${offset}`
        if (this.#stream.format === 'raw') return this.#stream.sendWithBytes(`${head},"data_bytes":${data.length}}`, data)
        return this.#stream.sendAscii(`${head},"data_b64":"${toBase64(data)}"}`)
      }
      case 'reattached':
        return this.#stream.send({ type: 'reattached', request_id, offset: event.offset } satisfies AttachedEventJson)
      case 'started':
      case 'warning':
        return this.#stream.send(event)
    }
  }

  async end({ state, outcome, from, next }: AttachProgress): Promise<void> {
    const request_id = this.#requestId
    const last: AttachedEventJson =
      outcome === null ? { type: 'end', request_id, state, from, next } : { type: 'exit', ...outcome, from, next }
    await this.#stream.send(last)
    this.#stream.end()
  }

  /** Reports an error as the last line of a stream that has begun. Returns false if no status line was sent, so that the caller can answer with one. */
  fail(error: unknown): boolean {
    if (!this.#stream.begun) return false
    const [request_id, next] = [this.#requestId, this.#next]
    void this.#stream.send({ type: 'error', request_id, ...errorFields(error), next } satisfies AttachedEventJson)
    this.#stream.end()
    return true
  }
}

const isoOf = (ms: number): string => new Date(ms).toISOString()

/** A detached run as clients see it. */
const viewOf = (
  { executor }: RestServices,
  { run, host, problem }: Pick<DetachedRunStatus, 'run' | 'host' | 'problem'>,
): DetachedRunView => {
  const { argv_cut, asked_at_ms, heard_at_ms, digest: _digest, requests: _requests, ...rest } = run
  return {
    ...rest,
    ...(argv_cut !== null && { argv_cut }),
    agent: executor.snapshot.contacts.find(({ agent_id }) => agent_id === run.agent_id)?.name ?? null,
    asked_at: isoOf(asked_at_ms),
    heard_at: heard_at_ms === null ? null : isoOf(heard_at_ms),
    kept: host && retainedOutputOf(host),
    problem: problem && { error: problem.code, message: problem.message, ...nextOf(problem) },
  }
}

const lastKnown = (run: DetachedRunStatus['run']): DetachedRunStatus => ({ run, host: null, problem: null, outcome: null })

/** Routes for detached runs. Each client of the API can see, await, end and forget all detached runs of this daemon. */
export const runsRoutes = (services: RestServices) => {
  const { detached } = services
  const view = (status: DetachedRunStatus): DetachedRunView => viewOf(services, status)
  return {
    'GET /runs': define({
      query: runsQuery,
      response: runs,
      handle: async ({ query: { refresh = false, session } }, reply) => {
        const all = (await detached.list()).filter((run) => session === undefined || run.session === session)
        const statuses = refresh ? await detached.refresh(all, closeSignal(reply)) : all.map(lastKnown)
        return { ok: true, runs: statuses.map(view) }
      },
    }),
    'GET /runs/{request_id}': define({
      params: runParams,
      query: runQuery,
      response: oneRun,
      handle: async ({ params, query: { refresh = false } }, reply) => {
        const run = await detached.get(params.request_id)
        const [status = lastKnown(run)] = refresh ? await detached.refresh([run], closeSignal(reply)) : []
        return { ok: true, ...view(status) }
      },
    }),
    'GET /runs/{request_id}/output': define({
      params: runParams,
      query: attachQuery,
      response: attachedOutput,
      streams: { 'application/x-ndjson': attachedEvent, 'text/event-stream': attachedEvent, [RAW_RUN_TYPE]: rawAttachedEvent },
      handle: async ({ params, query, headers }, reply) => attach(services, params.request_id, query, headers.accept, reply),
    }),
    'POST /runs/wait': define({
      body: runsWait,
      response: waitedRuns,
      handle: async ({ body }, reply) => ({ ok: true, runs: await waitFor(services, body, closeSignal(reply)) }),
    }),
    'POST /runs/cancel': define({
      body: runCancel,
      response: oneRun,
      handle: async ({ body }, reply) => ({ ok: true, ...view(await detached.cancel(body.request_id, closeSignal(reply))) }),
    }),
    'POST /runs/forget': define({
      body: runForget,
      response: oneRun,
      handle: async ({ body: { request_id, here = false } }, reply) => ({
        ok: true,
        ...view(lastKnown(await detached.forget(request_id, here, closeSignal(reply)))),
      }),
    }),
  } satisfies Definitions
}

/** `POST /exec/run` with `detach`. Answers when the run has started or was denied. */
export const startDetached = async (
  services: RestServices,
  { body, streamed }: RestRequest<RunRequest>,
  more: Pick<DetachedSpec, 'proof' | 'trace'>,
  signal: AbortSignal,
): Promise<object> => {
  const started = await services.detached.start(
    { ...detachedSpec(services, body, streamed !== null), ...more },
    body.session ?? null,
    signal,
  )
  return 'denied' in started ? new AggregatedRun().result(started.denied, body) : { ok: true, ...viewOf(services, started) }
}

/** Throws `bad_request`, `unknown_agent`, `ambiguous_agent`. */
const detachedSpec = ({ directory }: RestServices, body: RunRequest, hasLines: boolean): DetachedSpec => {
  const { detach, request_id } = body
  if (hasLines || body.stdin_b64 !== undefined || body.stdin_len !== undefined || body.stdin_sha256 !== undefined)
    throw new AppError('bad_request', 'detach: a detached run cannot have stdin')
  if (body.timeout_ms !== undefined) throw new AppError('bad_request', 'detach, timeout_ms: use detach.lifetime_ms for a detached run')
  const { lifetime_ms = null, keep_bytes = null } = typeof detach === 'object' ? detach : {}
  return {
    agent_id: targetOf(directory, body),
    argv: body.argv,
    cwd: body.cwd ?? null,
    clamp: body.clamp ?? false,
    lifetime_ms,
    keep_bytes,
    ...(request_id !== undefined && { request_id }),
  }
}

const attach = async (
  { clock, detached }: RestServices,
  requestId: RequestId,
  { from = 0, follow = true }: { from?: number | undefined; follow?: boolean | undefined },
  accept: string | undefined,
  reply: FastifyReply,
): Promise<unknown> => {
  const signal = closeSignal(reply)
  const format = streamFormat(accept)
  if (format === null) {
    const buffered = new BufferedAttachOutput({ from })
    try {
      const until = AbortSignal.any([signal, buffered.full])
      return buffered.result(requestId, await detached.attach(requestId, { from, follow }, buffered, until))
    } catch (error) {
      if (!buffered.full.aborted || signal.aborted) throw error
      const { state } = await detached.get(requestId)
      return buffered.result(requestId, { state, from, next: buffered.next, outcome: null })
    }
  }
  const sink = new StreamedOutput(new EventStream({ reply, clock }, { format }), { requestId, from })
  try {
    await sink.end(await detached.attach(requestId, { from, follow }, sink, signal))
  } catch (error) {
    if (!sink.fail(error)) throw error
  }
  return reply
}

type Waited = DetachedRunView & { readonly over: boolean; readonly outcome: DetachedRunStatus['outcome'] }

/**
 * Waits until each run has ended or the time is up. An unknown ID fails before anything is awaited. A run that is forgotten meanwhile is
 * reported with its last known state.
 */
const waitFor = async (
  services: RestServices,
  { request_ids, timeout_ms }: { request_ids: readonly RequestId[]; timeout_ms?: number | undefined },
  signal: AbortSignal,
): Promise<Waited[]> => {
  const { clock, detached } = services
  const known: DetachedRunStatus['run'][] = []
  for (const id of request_ids) known.push(await detached.get(id))
  const late = lateAfter(clock, timeout_ms)
  const answered = new AbortController()
  const ended = AbortSignal.any([signal, late.signal, answered.signal])
  try {
    return await Promise.all(
      known.map(async (before) => {
        const status = await detached.wait(before.request_id, ended).catch(async (error: unknown): Promise<DetachedRunStatus> => {
          signal.throwIfAborted()
          const problem = late.signal.aborted ? null : asAppError(error)
          const run = await detached.get(before.request_id).catch((why: unknown) => {
            if (isAppError(why, 'unknown_run')) return before
            throw why
          })
          return { ...lastKnown(run), problem }
        })
        return { ...viewOf(services, status), over: isOver(status.run.state), outcome: status.outcome }
      }),
    )
  } finally {
    late.cancel()
    // After an error, the remaining waits are not needed.
    answered.abort(new AppError('conflict', 'the wait is over'))
  }
}

const lateAfter = (clock: Clock, ms: number | undefined): { readonly signal: AbortSignal; cancel(): void } => {
  const late = new AbortController()
  const timer = ms === undefined ? null : clock.setTimeout(() => late.abort(new AppError('timeout')), ms)
  return { signal: late.signal, cancel: () => timer?.cancel() }
}
