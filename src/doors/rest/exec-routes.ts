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
import type { RestServices } from './services.ts'
import { operatorRoute } from './contacts.ts'
import { type Definitions, type RestRequest, define } from './definition.ts'
import { startDetached } from './detached-routes.ts'
import {
  type CancelRequest,
  type RunRequest,
  cancelRequest,
  oneRun,
  outputQuery,
  rawRunEvent,
  rules,
  rulesQuery,
  runEvent,
  runOutput,
  runRequest,
  runResult,
} from './schemas.ts'
import { EventStream } from './event-stream.ts'
import { MAX_JSON_BODY } from './request-bodies.ts'
import { toRunSpec } from './run-request.ts'
import { AggregatedRun, StreamedRun, closeSignal, streamFormat } from './run-response.ts'

export const execRoutes = (services: RestServices) =>
  ({
    'POST /exec/run': define({
      body: runRequest,
      response: z.union([runResult, oneRun]),
      streams: { 'application/x-ndjson': runEvent, 'text/event-stream': runEvent, [RAW_RUN_TYPE]: rawRunEvent },
      bodyLimit: MAX_JSON_BODY,
      takesLines: true,
      checkRoom: () => services.runner.checkRoom(),
      proof: 'taken',
      handle: async (request, reply) => run(services, request, reply),
    }),
    'POST /exec/cancel': define({
      body: cancelRequest,
      response: cancelAnswer,
      proof: 'taken',
      handle: async (request) => cancel(services, request),
    }),
    'POST /exec/incoming': operatorRoute(services.executor, 'exec_incoming', incomingList, incomingRuns),
    'POST /exec/incoming/cancel': operatorRoute(services.executor, 'exec_incoming_cancel', incomingCancel, incomingEnded),
    'GET /exec/rules': define({
      query: rulesQuery,
      response: rules,
      handle: async ({ query }, reply) =>
        askNamed(services, query, closeSignal(reply), async (agentId, signal) => services.rules.ask(agentId, signal)),
    }),
    'GET /exec/sessions': define({
      response: sessionsAnswer,
      handle: async () => ({ ok: true, sessions: services.runner.sessions(), fanouts: services.fanouts.sessions() }),
    }),
    'GET /exec/output': define({
      query: outputQuery,
      response: runOutput,
      handle: async ({ query }) => {
        const { tail = null, tail_truncated = false } = services.runner.output(query.request_id)
        return { ok: true as const, request_id: query.request_id, tail, tail_truncated }
      },
    }),
    'GET /diagnostics/exec': define({
      response: execDiagnosticsAnswer,
      handle: async () => ({
        ok: true,
        ...((await services.executor.query('exec_diagnostics')) as object),
        requester: services.runner.diagnostics(),
      }),
    }),
  }) satisfies Definitions

/** A wrong proof cancels nothing. With a valid one, the audit log has the operator's decision before the run ends. */
const cancel = async (
  { executor, fanouts, runner }: RestServices,
  { body: { request_id, fanout_id }, rawBody, proof }: RestRequest<CancelRequest>,
): Promise<object> => {
  if ((request_id === undefined) === (fanout_id === undefined))
    throw new AppError('bad_request', 'request_id, fanout_id: give exactly one of the two')
  if (proof !== '') await executor.operate('exec_cancel', rawBody, proof)
  if (request_id !== undefined) runner.cancel(request_id)
  if (fanout_id !== undefined) fanouts.cancel(fanout_id)
  return request_id === undefined ? { ok: true, fanout_id } : { ok: true, request_id }
}

const run = async (services: RestServices, request: RestRequest<RunRequest>, reply: FastifyReply): Promise<unknown> => {
  // Created first, so that a disconnect during the upload of stdin is noticed.
  const signal = closeSignal(reply)
  const proof = proofOf(services, request)
  const { detach = false } = request.body
  if (detach !== false) return startDetached(services, request, { ...(proof !== null && { proof }), ...traceOf(request) }, signal)
  const spec = {
    ...(await toRunSpec(request.body, request.streamed, services.directory)),
    ...(proof !== null && { proof }),
    ...traceOf(request),
  }
  const ask = async (sink: RunSink): Promise<RunOutcome> =>
    // A streamed stdin can be read only once.
    request.streamed !== null
      ? services.runner.run(spec, sink, signal)
      : askNamed(services, request.body, signal, async (agent_id) => services.runner.run({ ...spec, agent_id }, sink, signal))
  const format = streamFormat(request.headers.accept)
  if (format === null) {
    const sink = new AggregatedRun()
    return sink.result(await ask(sink), request.body)
  }
  const { clock } = services
  const discardRest = async (): Promise<void> => request.streamed?.discardRest(clock)
  const sink = new StreamedRun(new EventStream({ reply, clock }, { format }), discardRest)
  try {
    await sink.end(await ask(sink), request.body)
  } catch (error) {
    if (!sink.fail(error)) throw error
  }
  return reply
}

export const traceOf = ({ headers: { traceparent } }: RestRequest<unknown>): Pick<RunSpec, 'trace'> => {
  const trace = parseTraceparent(typeof traceparent === 'string' ? traceparent : undefined)
  return trace === null ? {} : { trace }
}

/** The executor checks the proof. A missing proof is refused here, before an agent is dialled. */
export const proofOf = ({ executor }: RestServices, { proof, rawBody }: RestRequest<unknown>): RequestProof | null => {
  if (proof === '' && !executor.snapshot.require_operator_proof) return null
  if (proof === '')
    throw new AppError(
      'operator_proof_required',
      'this daemon sends requests for its operators only (require_operator_proof): use the x0x command, which signs with operator.key',
    )
  if (rawBody.length > MAX_PROVEN_REQUEST)
    throw new AppError(
      'too_large',
      `a request with an operator proof has at most ${MAX_PROVEN_REQUEST} bytes; send stdin of a run in separate lines`,
    )
  return { proven: rawBody, proof }
}
