import type { FastifyReply } from 'fastify'
import { MAX_FANOUT_HOSTS } from '../../protocol/fanout-limits.ts'
import type { RestComponents } from './components.ts'
import { type Definitions, type RestRequest, define } from './definition.ts'
import { EventStream } from './event-stream.ts'
import { proofOf, traceOf } from './exec-routes.ts'
import { toFanoutSpec } from './fanout-request.ts'
import { AggregatedFanout, StreamedFanout, fanoutFormat } from './fanout-response.ts'
import { type FanoutRequest, fanoutEvent, fanoutRequest, fanoutResult } from './fanout-schemas.ts'
import { MAX_JSON_BODY } from './held-bodies.ts'
import { MAX_BODY_SHAPE } from './ndjson.ts'
import { callerGone } from './run-response.ts'

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
