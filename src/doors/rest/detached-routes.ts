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
import type { RestComponents } from './components.ts'
import { type Definitions, type RestRequest, define, errorFields } from './definition.ts'
import {
  attachedEvent,
  attachedOutput,
  oneRun,
  outputQuery,
  rawAttachedEvent,
  runCancel,
  runForget,
  runParams,
  runQuery,
  runs,
  runsQuery,
  runsWait,
  waitedRuns,
} from './detached-schemas.ts'
import { EventStream } from './event-stream.ts'
import { targetOf } from './run-request.ts'
import { AggregatedRun, callerGone, streamFormat } from './run-response.ts'
import type { RunRequest } from './schemas.ts'

/** As callers are shown it. */
export const keptThere = ({
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

/** Keeps output for one JSON answer, as far as it fits: whoever wants more goes on at `next`. */
export class BufferedAttachOutput implements DetachedSink {
  readonly #parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] }
  readonly #full = new AbortController()
  readonly #max: number
  /** Aborts when nothing more fits. */
  readonly full = this.#full.signal
  #kept = 0
  next: number

  constructor(init: { from: number; max?: number }) {
    this.next = init.from
    this.#max = init.max ?? MAX_AGGREGATED_OUTPUT
  }

  event(event: DetachedRunEvent): void {
    if ((event.type !== 'stdout' && event.type !== 'stderr') || this.full.aborted) return
    const data = event.data.subarray(0, this.#max - this.#kept)
    this.#parts[event.type].push(data)
    this.#kept += data.length
    this.next = event.offset + data.length
    if (this.#kept >= this.#max) this.#full.abort()
  }

  result(request_id: RequestId, { state, from, next, outcome }: AttachProgress): object {
    const [stdout_b64, stderr_b64] = [this.#text('stdout'), this.#text('stderr')]
    return { ok: true, request_id, state, from, next, stdout_b64, stderr_b64, outcome }
  }

  #text(name: 'stdout' | 'stderr'): string {
    return Buffer.concat(this.#parts[name]).toString('base64')
  }
}

/** Writes events as they come; a reader that is behind holds its stream from the host, and nothing else. */
export class StreamedOutput implements DetachedSink {
  readonly #stream: EventStream
  readonly #requestId: RequestId
  #next: number

  constructor(components: { stream: EventStream }, init: { requestId: RequestId; from: number }) {
    this.#stream = components.stream
    this.#requestId = init.requestId
    this.#next = init.from
  }

  event(event: DetachedRunEvent): void | Promise<void> {
    const request_id = this.#requestId
    switch (event.type) {
      case 'run_state': {
        const { info, from } = event
        return this.#stream.send({ type: 'state', request_id, state: info.state, from, ...keptThere(info) } satisfies AttachedEventJson)
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

  /** An error after the head went out has no status any more: it is the last line. False = nothing went out yet. */
  fail(error: unknown): boolean {
    if (!this.#stream.begun) return false
    const [request_id, next] = [this.#requestId, this.#next]
    void this.#stream.send({ type: 'error', request_id, ...errorFields(error), next } satisfies AttachedEventJson)
    this.#stream.end()
    return true
  }
}

const isoOf = (ms: number): string => new Date(ms).toISOString()

/** What callers see of it. */
const shownRun = (
  { executor }: RestComponents,
  { run, host, problem }: Pick<DetachedRunStatus, 'run' | 'host' | 'problem'>,
): DetachedRunView => {
  const { argv_cut, asked_at_ms, heard_at_ms, digest: _digest, requests: _requests, ...rest } = run
  return {
    ...rest,
    ...(argv_cut !== null && { argv_cut }),
    agent: executor.snapshot.contacts.find(({ agent_id }) => agent_id === run.agent_id)?.name ?? null,
    asked_at: isoOf(asked_at_ms),
    heard_at: heard_at_ms === null ? null : isoOf(heard_at_ms),
    kept: host && keptThere(host),
    problem: problem && { error: problem.code, message: problem.message, ...nextOf(problem) },
  }
}

const unasked = (run: DetachedRunStatus['run']): DetachedRunStatus => ({ run, host: null, problem: null, outcome: null })

/** Runs that outlive whoever asked for them. Whoever may ask for a run may see, wait for, end and forget those that this daemon asked for. */
export const runsRoutes = (components: RestComponents) => {
  const { detached } = components
  const shown = (heard: DetachedRunStatus): DetachedRunView => shownRun(components, heard)
  return {
    'GET /runs': define({
      query: runsQuery,
      response: runs,
      handle: async ({ query: { refresh = false, session } }, reply) => {
        const all = (await detached.list()).filter((run) => session === undefined || run.session === session)
        const heard = refresh ? await detached.refresh(all, callerGone(reply)) : all.map(unasked)
        return { ok: true, runs: heard.map(shown) }
      },
    }),
    'GET /runs/{request_id}': define({
      params: runParams,
      query: runQuery,
      response: oneRun,
      handle: async ({ params, query: { refresh = false } }, reply) => {
        const run = await detached.get(params.request_id)
        const [heard = unasked(run)] = refresh ? await detached.refresh([run], callerGone(reply)) : []
        return { ok: true, ...shown(heard) }
      },
    }),
    'GET /runs/{request_id}/output': define({
      params: runParams,
      query: outputQuery,
      response: attachedOutput,
      streams: { 'application/x-ndjson': attachedEvent, 'text/event-stream': attachedEvent, [RAW_RUN_TYPE]: rawAttachedEvent },
      handle: async ({ params, query, headers }, reply) => attach(components, params.request_id, query, headers.accept, reply),
    }),
    'POST /runs/wait': define({
      body: runsWait,
      response: waitedRuns,
      handle: async ({ body }, reply) => ({ ok: true, runs: await waitFor(components, body, callerGone(reply)) }),
    }),
    'POST /runs/cancel': define({
      body: runCancel,
      response: oneRun,
      handle: async ({ body }, reply) => ({ ok: true, ...shown(await detached.cancel(body.request_id, callerGone(reply))) }),
    }),
    'POST /runs/forget': define({
      body: runForget,
      response: oneRun,
      handle: async ({ body: { request_id, here = false } }, reply) => ({
        ok: true,
        ...shown(unasked(await detached.forget(request_id, here, callerGone(reply)))),
      }),
    }),
  } satisfies Definitions
}

/** `POST /exec/run` with `detach`: answers when it is started, or denied. */
export const startDetached = async (
  components: RestComponents,
  { body, streamed }: RestRequest<RunRequest>,
  more: Pick<DetachedSpec, 'proof' | 'trace'>,
  gone: AbortSignal,
): Promise<object> => {
  const started = await components.detached.start(
    { ...detachedSpec(components, body, streamed !== null), ...more },
    body.session ?? null,
    gone,
  )
  return 'denied' in started ? new AggregatedRun().result(started.denied, body) : { ok: true, ...shownRun(components, started) }
}

/** Throws `bad_request`, `unknown_agent`, `ambiguous_agent`. */
const detachedSpec = ({ directory }: RestComponents, body: RunRequest, hasLines: boolean): DetachedSpec => {
  const { detach, request_id } = body
  if (hasLines || body.stdin_b64 !== undefined || body.stdin_len !== undefined || body.stdin_sha256 !== undefined)
    throw new AppError('bad_request', 'detach: a detached run reads no stdin')
  if (body.timeout_ms !== undefined) throw new AppError('bad_request', 'detach, timeout_ms: its time is detach.lifetime_ms')
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
  { clock, detached }: RestComponents,
  requestId: RequestId,
  { from = 0, follow = true }: { from?: number | undefined; follow?: boolean | undefined },
  accept: string | undefined,
  reply: FastifyReply,
): Promise<unknown> => {
  const gone = callerGone(reply)
  const format = streamFormat(accept)
  if (format === null) {
    const gathered = new BufferedAttachOutput({ from })
    try {
      const signal = AbortSignal.any([gone, gathered.full])
      return gathered.result(requestId, await detached.attach(requestId, { from, follow }, gathered, signal))
    } catch (error) {
      if (!gathered.full.aborted || gone.aborted) throw error
      const { state } = await detached.get(requestId)
      return gathered.result(requestId, { state, from, next: gathered.next, outcome: null })
    }
  }
  const sink = new StreamedOutput({ stream: new EventStream({ reply, clock }, { format }) }, { requestId, from })
  try {
    await sink.end(await detached.attach(requestId, { from, follow }, sink, gone))
  } catch (error) {
    if (!sink.fail(error)) throw error
  }
  return reply
}

type Waited = DetachedRunView & { readonly over: boolean; readonly outcome: DetachedRunStatus['outcome'] }

/**
 * All of them, until each is over or the time is up. One that is not known here is an error before any is waited for; one that is
 * forgotten later ends for itself, as it was last known.
 */
const waitFor = async (
  components: RestComponents,
  { request_ids, timeout_ms }: { request_ids: readonly RequestId[]; timeout_ms?: number | undefined },
  gone: AbortSignal,
): Promise<Waited[]> => {
  const { clock, detached } = components
  const known: DetachedRunStatus['run'][] = []
  for (const id of request_ids) known.push(await detached.get(id))
  const late = lateAfter(clock, timeout_ms)
  const answered = new AbortController()
  const signal = AbortSignal.any([gone, late.signal, answered.signal])
  try {
    return await Promise.all(
      known.map(async (before) => {
        const heard = await detached.wait(before.request_id, signal).catch(async (error: unknown): Promise<DetachedRunStatus> => {
          gone.throwIfAborted()
          const problem = late.signal.aborted ? null : asAppError(error)
          const run = await detached.get(before.request_id).catch((why: unknown) => {
            if (isAppError(why, 'unknown_run')) return before
            throw why
          })
          return { ...unasked(run), problem }
        })
        return { ...shownRun(components, heard), over: isOver(heard.run.state), outcome: heard.outcome }
      }),
    )
  } finally {
    late.cancel()
    // Where one was an error, nobody waits for the others any more.
    answered.abort(new AppError('conflict', 'the wait is over'))
  }
}

const lateAfter = (clock: Clock, ms: number | undefined): { readonly signal: AbortSignal; cancel(): void } => {
  const late = new AbortController()
  const timer = ms === undefined ? null : clock.setTimeout(() => late.abort(new AppError('timeout')), ms)
  return { signal: late.signal, cancel: () => timer?.cancel() }
}
