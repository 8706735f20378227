import type { FastifyReply } from 'fastify'
import type { Clock } from '../../base/clock.ts'
import { AppError, asAppError, isAppError, nextOf } from '../../base/errors.ts'
import type { HeardOf } from '../../exec/detached-runs.ts'
import type { DetachedSpec } from '../../exec/detached/detached-types.ts'
import { type ShownRun, isOver } from '../../protocol/asked-run.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { RAW_RUN_TYPE } from '../../protocol/run-events.ts'
import { GatheredOutput, StreamedOutput, keptThere } from './attached-output.ts'
import type { RestComponents } from './components.ts'
import { type Definitions, type RestRequest, define } from './definition.ts'
import { EventStream } from './event-stream.ts'
import { targetOf } from './run-request.ts'
import { AggregatedRun, callerGone, streamFormat } from './run-response.ts'
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
} from './run-schemas.ts'
import type { RunRequest } from './schemas.ts'

const isoOf = (ms: number): string => new Date(ms).toISOString()

/** What callers see of it. */
const shownRun = ({ executor }: RestComponents, { run, host, problem }: Pick<HeardOf, 'run' | 'host' | 'problem'>): ShownRun => {
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

const unasked = (run: HeardOf['run']): HeardOf => ({ run, host: null, problem: null, outcome: null })

/** Runs that outlive whoever asked for them. Whoever may ask for a run may see, wait for, end and forget those that this daemon asked for. */
export const runsRoutes = (components: RestComponents) => {
  const { detached } = components
  const shown = (heard: HeardOf): ShownRun => shownRun(components, heard)
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
    const gathered = new GatheredOutput({ from })
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

type Waited = ShownRun & { readonly over: boolean; readonly outcome: HeardOf['outcome'] }

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
  const known: HeardOf['run'][] = []
  for (const id of request_ids) known.push(await detached.get(id))
  const late = lateAfter(clock, timeout_ms)
  const answered = new AbortController()
  const signal = AbortSignal.any([gone, late.signal, answered.signal])
  try {
    return await Promise.all(
      known.map(async (before) => {
        const heard = await detached.wait(before.request_id, signal).catch(async (error: unknown): Promise<HeardOf> => {
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
