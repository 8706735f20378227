import type { FastifyReply } from 'fastify'
import * as z from 'zod'
import { AppError } from '../../base/errors.ts'
import type { RunOutcome, RunSink, RunSpec } from '../../exec/run-spec.ts'
import type { RequestProof } from '../../executor-api/messages.ts'
import { RAW_RUN_TYPE } from '../../protocol/api/run-events.ts'
import { MAX_PROVEN_REQUEST } from '../../protocol/limits/daemon.ts'
import { parseTraceparent } from '../../protocol/trace-context.ts'
import { askNamed } from './agents.ts'
import {
  cancelAnswer,
  execDiagnosticsAnswer,
  incomingCancel,
  incomingEnded,
  incomingList,
  incomingRuns,
  sessionsAnswer,
} from './answer-schemas.ts'
import type { RestComponents } from './components.ts'
import { operatorRoute } from './contacts.ts'
import { type Definitions, type RestRequest, define } from './definition.ts'
import { startDetached } from './detached-routes.ts'
import { oneRun } from './detached-schemas.ts'
import { EventStream } from './event-stream.ts'
import { MAX_JSON_BODY } from './request-bodies.ts'
import { toRunSpec } from './run-request.ts'
import { AggregatedRun, StreamedRun, callerGone, streamFormat } from './run-response.ts'
import {
  type RunRequest,
  cancelRequest,
  outputQuery,
  rawRunEvent,
  rules,
  rulesQuery,
  runEvent,
  runOutput,
  runRequest,
  runResult,
} from './schemas.ts'

export const execRoutes = (components: RestComponents) =>
  ({
    'POST /exec/run': define({
      body: runRequest,
      response: z.union([runResult, oneRun]),
      streams: { 'application/x-ndjson': runEvent, 'text/event-stream': runEvent, [RAW_RUN_TYPE]: rawRunEvent },
      bodyLimit: MAX_JSON_BODY,
      takesLines: true,
      checkRoom: () => components.runner.checkRoom(),
      proof: 'taken',
      handle: async (request, reply) => run(components, request, reply),
    }),
    'POST /exec/cancel': define({
      body: cancelRequest,
      response: cancelAnswer,
      handle: async ({ body: { request_id, fanout_id } }) => {
        if (request_id !== undefined && fanout_id === undefined) components.runner.cancel(request_id)
        else if (fanout_id !== undefined && request_id === undefined) components.fanouts.cancel(fanout_id)
        else throw new AppError('bad_request', 'request_id, fanout_id: name what to cancel with exactly one of the two')
        return request_id === undefined ? { ok: true, fanout_id } : { ok: true, request_id }
      },
    }),
    'POST /exec/incoming': operatorRoute(components.executor, 'exec_incoming', incomingList, incomingRuns),
    'POST /exec/incoming/cancel': operatorRoute(components.executor, 'exec_incoming_cancel', incomingCancel, incomingEnded),
    'GET /exec/rules': define({
      query: rulesQuery,
      response: rules,
      handle: async ({ query }, reply) =>
        askNamed(components, query, callerGone(reply), async (agentId, gone) => components.rules.ask(agentId, gone)),
    }),
    'GET /exec/sessions': define({
      response: sessionsAnswer,
      handle: async () => ({ ok: true, sessions: components.runner.sessions(), fanouts: components.fanouts.sessions() }),
    }),
    'GET /exec/output': define({
      query: outputQuery,
      response: runOutput,
      handle: async ({ query }) => {
        const { tail = null, tail_truncated = false } = components.runner.output(query.request_id)
        return { ok: true as const, request_id: query.request_id, tail, tail_truncated }
      },
    }),
    'GET /diagnostics/exec': define({
      response: execDiagnosticsAnswer,
      handle: async () => ({
        ok: true,
        ...((await components.executor.query('exec_diagnostics')) as object),
        requester: components.runner.diagnostics(),
      }),
    }),
  }) satisfies Definitions

const run = async (components: RestComponents, request: RestRequest<RunRequest>, reply: FastifyReply): Promise<unknown> => {
  // First of all, so that a caller who leaves while stdin is still being read is noticed.
  const gone = callerGone(reply)
  const proof = proofOf(components, request)
  const { detach = false } = request.body
  if (detach !== false) return startDetached(components, request, { ...(proof !== null && { proof }), ...traceOf(request) }, gone)
  const spec = {
    ...(await toRunSpec(request.body, request.streamed, components.directory)),
    ...(proof !== null && { proof }),
    ...traceOf(request),
  }
  const ask = async (sink: RunSink): Promise<RunOutcome> =>
    // What streams in is read once.
    request.streamed !== null
      ? components.runner.run(spec, sink, gone)
      : askNamed(components, request.body, gone, async (agent_id) => components.runner.run({ ...spec, agent_id }, sink, gone))
  const format = streamFormat(request.headers.accept)
  if (format === null) {
    const sink = new AggregatedRun()
    return sink.result(await ask(sink), request.body)
  }
  const { clock } = components
  const discardRest = async (): Promise<void> => request.streamed?.discardRest(clock)
  const sink = new StreamedRun({ stream: new EventStream({ reply, clock }, { format }), discardRest })
  try {
    await sink.end(await ask(sink), request.body)
  } catch (error) {
    if (!sink.fail(error)) throw error
  }
  return reply
}

/** The trace that its caller says it belongs to. */
export const traceOf = ({ headers: { traceparent } }: RestRequest<unknown>): Pick<RunSpec, 'trace'> => {
  const trace = parseTraceparent(typeof traceparent === 'string' ? traceparent : undefined)
  return trace === null ? {} : { trace }
}

/** Only the executor can check a proof; that there is none can be said before anybody is dialled. */
export const proofOf = ({ executor }: RestComponents, { proof, rawBody }: RestRequest<unknown>): RequestProof | null => {
  if (proof === '' && !executor.snapshot.require_operator_proof) return null
  if (proof === '')
    throw new AppError(
      'operator_proof_required',
      'this daemon asks others for operators only (require_operator_proof): use the x0x command, which proves it with operator.key',
    )
  if (rawBody.length > MAX_PROVEN_REQUEST)
    throw new AppError(
      'too_large',
      `what an operator proves has at most ${MAX_PROVEN_REQUEST} bytes; let stdin of a run follow in lines of its own`,
    )
  return { proven: rawBody, proof }
}
