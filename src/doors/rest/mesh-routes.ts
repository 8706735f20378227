import { AppError } from '../../base/errors.ts'
import { METRICS_TYPE } from '../../base/exposition.ts'
import type { AgentId } from '../../protocol/ids.ts'
import { MAX_DIRECT_PAYLOAD } from '../../protocol/limits.ts'
import { connectedAnswer, linkDiagnosticsAnswer, meshDiagnosticsAnswer, peersAnswer, sentAnswer } from './answer-schemas.ts'
import type { Callers } from './callers.ts'
import type { RestComponents } from './components.ts'
import { type Definitions, define } from './definition.ts'
import { EventStream } from './event-stream.ts'
import { askNamed } from './named-agent.ts'
import { decodeBase64 } from './ndjson.ts'
import { pinged } from './operator-schemas.ts'
import { callerGone } from './run-response.ts'
import { connectRequest, directEvent, sendRequest } from './schemas.ts'

/** A JSON body with one direct message: its payload in base64 and the fields around it. */
const MAX_DIRECT_BODY = 68 * 1024

const PAYLOAD_LIMIT = `a payload has at most ${MAX_DIRECT_PAYLOAD} bytes (48 KiB)`

/** Links, and what agents say to each other beside runs. `callers` ends the streams of events. */
export const meshRoutes = (components: RestComponents, callers: Pick<Callers, 'signal'>) => {
  const { links, messages, pings, view } = components
  return {
    'GET /peers': define({ response: peersAnswer, handle: async () => ({ ok: true, peers: view.peers(), mesh: view.counts() }) }),
    'POST /agents/connect': define({
      body: connectRequest,
      response: connectedAnswer,
      handle: async ({ body }, reply) => {
        const link = await askNamed(components, body, callerGone(reply), async (agentId, gone) => links.link(agentId, gone))
        return { ok: true, agent_id: link.agentId, machine_id: link.machineId, decision: link.decision }
      },
    }),
    'POST /agents/ping': define({
      body: connectRequest,
      response: pinged,
      handle: async ({ body }, reply) => {
        const pong = await askNamed(components, body, callerGone(reply), async (agentId, gone) => pings.ping(agentId, gone))
        return { ok: true as const, ...pong }
      },
    }),
    'POST /direct/send': define({
      body: sendRequest,
      bodyLimit: MAX_DIRECT_BODY,
      bodyHolds: PAYLOAD_LIMIT,
      response: sentAnswer,
      handle: async ({ body }, reply) => {
        const { content_type } = body
        const payload = decodeBase64(body.payload_b64, 'payload_b64')
        if (payload.length > MAX_DIRECT_PAYLOAD) throw new AppError('too_large', `payload_b64: ${PAYLOAD_LIMIT}, not ${payload.length}`)
        const send = async (agentId: AgentId, gone: AbortSignal) => messages.send(agentId, { content_type, payload }, gone)
        return { ok: true, ...(await askNamed(components, body, callerGone(reply), send)) }
      },
    }),
    'GET /direct/events': define({
      streams: { 'text/event-stream': directEvent },
      handle: async (_request, reply) => {
        const stream = new EventStream({ reply, clock: components.clock }, { format: 'sse' })
        stream.begin()
        const subscription = messages.subscribe()
        const ended = AbortSignal.any([callerGone(reply), callers.signal])
        ended.addEventListener('abort', () => subscription.close(), { once: true })
        if (ended.aborted) subscription.close()
        for await (const event of subscription) await stream.send(event)
        stream.end()
        return reply
      },
    }),
    'GET /diagnostics/dm': define({
      response: linkDiagnosticsAnswer,
      handle: async () => ({ ok: true, ...components.dmCounters.snapshot(), links: links.list() }),
    }),
    'GET /diagnostics/mesh': define({ response: meshDiagnosticsAnswer, handle: async () => ({ ok: true, ...view.diagnostics() }) }),
    'GET /metrics': define({
      text: METRICS_TYPE,
      metricsToken: true,
      handle: async (_request, reply) => reply.type(METRICS_TYPE).send(await components.metrics.text()),
    }),
  } satisfies Definitions
}
