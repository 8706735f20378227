import type { FastifyReply } from 'fastify'
import * as z from 'zod'
import { AppError } from '../../base/errors.ts'
import type { RunOutcome, RunSink, TerminalInput } from '../../exec/run-spec.ts'
import { newRequestId } from '../../identity/request-id.ts'
import { RAW_RUN_TYPE, RAW_TERMINAL_EVENTS, TERMINAL_EVENTS, type TerminalEventJson } from '../../protocol/api/run-events.ts'
import type { AgentId } from '../../protocol/ids.ts'
import { MAX_MESH_TERMINAL_SIDE, MAX_TERM_NAME } from '../../protocol/limits/terminal.ts'
import { isTermName } from '../../protocol/wire/terminal.ts'
import { parseWith } from '../validation.ts'
import { askNamed } from './agents.ts'
import { type Definitions, type RestRequest, define } from './definition.ts'
import { EventStream, decodeBase64 } from './event-stream.ts'
import { proofOf, traceOf } from './exec-routes.ts'
import { MAX_JSON_BODY } from './request-bodies.ts'
import type { StreamedBody } from './run-request.ts'
import { StreamedRun, closeSignal, streamFormat } from './run-response.ts'
import { base64, eventOf, runRequest } from './schemas.ts'
import type { RestServices } from './services.ts'

const side = z.int().min(1).max(MAX_MESH_TERMINAL_SIDE)

const { agent_id, agent, argv, timeout_ms, clamp, request_id, session } = runRequest.shape

/** The first line of the body. */
export const terminalRequest = z
  .strictObject({
    agent_id,
    agent,
    argv,
    timeout_ms,
    clamp,
    request_id,
    session,
    terminal: z.strictObject({
      columns: side,
      rows: side,
      term: z
        .string()
        .max(MAX_TERM_NAME)
        .refine(isTermName, 'not a valid terminal type')
        .describe('value of the variable TERM on the target'),
    }),
  })
  .meta({ id: 'TerminalRequest' })
type TerminalRequest = z.infer<typeof terminalRequest>

/** Each later line: typed bytes, or a new size. */
export const terminalLine = z.union([z.strictObject({ data: base64 }), z.strictObject({ columns: side, rows: side })])

const terminalEvent = eventOf(TERMINAL_EVENTS).meta({ id: 'TerminalEvent' })
const rawTerminalEvent = eventOf(RAW_TERMINAL_EVENTS).meta({ id: 'RawTerminalEvent' })

export const terminalRoutes = (services: RestServices) =>
  ({
    'POST /exec/terminal': define({
      body: terminalRequest,
      streams: { 'application/x-ndjson': terminalEvent, [RAW_RUN_TYPE]: rawTerminalEvent },
      bodyLimit: MAX_JSON_BODY,
      takesLines: 'always',
      checkRoom: () => services.runner.checkRoom(),
      proof: 'taken',
      handle: async (request, reply) => runOnTerminal(services, request, reply),
    }),
  }) satisfies Definitions

/** Input lines while the answer is sent. */
async function* inputsOf(streamed: StreamedBody): AsyncGenerator<TerminalInput, void, undefined> {
  for await (const line of streamed.values()) {
    const input = parseWith(terminalLine, line)
    if (!('data' in input)) yield input
    else if (input.data !== '') yield { data: decodeBase64(input.data, 'data') }
  }
}

const runOnTerminal = async (services: RestServices, request: RestRequest<TerminalRequest>, reply: FastifyReply): Promise<unknown> => {
  const signal = closeSignal(reply)
  const { body, streamed } = request
  if (streamed === null)
    throw new AppError(
      'bad_request',
      'Content-Type: expected application/x-ndjson, with the request in the first line and one input in each further line',
    )
  const proof = proofOf(services, request)
  const { request_id = newRequestId(), argv } = body
  streamed.passOn()
  const spec = {
    argv,
    request_id,
    stdin: null,
    cwd: null,
    terminal: { ...body.terminal, input: inputsOf(streamed) },
    timeout_ms: body.timeout_ms ?? null,
    clamp: body.clamp ?? false,
    ...(body.session !== undefined && { session: body.session }),
    ...(proof !== null && { proof }),
    ...traceOf(request),
  }
  const { clock } = services
  const format = streamFormat(request.headers.accept) === 'raw' ? 'raw' : 'ndjson'
  const stream = new EventStream({ reply, clock }, { format })
  const run = new StreamedRun(stream, async () => streamed.discardRest(clock))
  const sink: RunSink = {
    event: (event) => run.event(event),
    connection: (type) => void stream.send({ type, request_id } satisfies TerminalEventJson),
  }
  try {
    const ask = async (agent_id: AgentId): Promise<RunOutcome> => services.runner.run({ ...spec, agent_id }, sink, signal)
    await run.end(await askNamed(services, body, signal, ask), body)
  } catch (error) {
    if (!run.fail(error)) throw error
  }
  return reply
}
