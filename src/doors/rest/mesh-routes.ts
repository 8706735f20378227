import type * as z from 'zod'
import { AppError } from '../../base/errors.ts'
import { METRICS_TYPE } from '../../base/metrics.ts'
import { type AgentId, shortId } from '../../protocol/ids.ts'
import { MAX_DIRECT_PAYLOAD } from '../../protocol/limits/wire.ts'
import { type ClientTokens, askNamed } from './agents.ts'
import {
  connectedAnswer,
  health,
  linkDiagnosticsAnswer,
  meshDiagnosticsAnswer,
  peersAnswer,
  pinged,
  routesAnswer,
  sentAnswer,
} from './answer-schemas.ts'
import type { RestServices, RestInit } from './services.ts'
import { type Definitions, define } from './definition.ts'
import { EventStream, decodeBase64 } from './event-stream.ts'
import { ROUTES } from './routes.ts'
import { closeSignal } from './run-response.ts'
import { connectRequest, directEvent, openapiDocument, sendRequest } from './schemas.ts'

/** Size of a JSON body with one direct message. It has the payload in base64 and the fields around it. */
const MAX_DIRECT_BODY = 68 * 1024

const PAYLOAD_LIMIT = `a payload has at most ${MAX_DIRECT_PAYLOAD} bytes (48 KiB)`

const peersOf = ({ executor, view }: RestServices): z.infer<typeof peersAnswer> => ({
  ok: true,
  peers: view.peers(),
  mesh: view.counts(),
  ...(executor.isDraining && { draining: true }),
})

/** Routes for links, pings and direct messages. `tokens` ends the event streams of replaced tokens. */
export const meshRoutes = (services: RestServices, tokens: Pick<ClientTokens, 'signal'>) => {
  const { links, messages, pings, view } = services
  return {
    'GET /peers': define({ response: peersAnswer, handle: async () => peersOf(services) }),
    'POST /agents/connect': define({
      body: connectRequest,
      response: connectedAnswer,
      handle: async ({ body }, reply) => {
        const link = await askNamed(services, body, closeSignal(reply), async (agentId, signal) => links.link(agentId, signal))
        return { ok: true, agent_id: link.agentId, machine_id: link.machineId, decision: link.decision }
      },
    }),
    'POST /agents/ping': define({
      body: connectRequest,
      response: pinged,
      handle: async ({ body }, reply) => {
        const pong = await askNamed(services, body, closeSignal(reply), async (agentId, signal) => pings.ping(agentId, signal))
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
        const send = async (agentId: AgentId, signal: AbortSignal) => messages.send(agentId, { content_type, payload }, signal)
        return { ok: true, ...(await askNamed(services, body, closeSignal(reply), send)) }
      },
    }),
    'GET /direct/events': define({
      streams: { 'text/event-stream': directEvent },
      handle: async (_request, reply) => {
        const stream = new EventStream({ reply, clock: services.clock }, { format: 'sse' })
        stream.start()
        const subscription = messages.subscribe()
        const ended = AbortSignal.any([closeSignal(reply), tokens.signal])
        ended.addEventListener('abort', () => subscription.close(), { once: true })
        if (ended.aborted) subscription.close()
        for await (const event of subscription) await stream.send(event)
        stream.end()
        return reply
      },
    }),
    'GET /diagnostics/dm': define({
      response: linkDiagnosticsAnswer,
      handle: async () => ({ ok: true, ...services.dmCounters.snapshot(), links: links.list() }),
    }),
    'GET /diagnostics/mesh': define({ response: meshDiagnosticsAnswer, handle: async () => ({ ok: true, ...view.diagnostics() }) }),
    'GET /metrics': define({
      text: METRICS_TYPE,
      metricsToken: true,
      handle: async (_request, reply) => reply.type(METRICS_TYPE).send(await services.metrics.text()),
    }),
  } satisfies Definitions
}

export const statusRoutes = (services: RestServices, init: RestInit, document: () => object) => {
  const startedAt = services.clock.monotonic()
  return {
    'GET /health': define({
      response: health,
      unavailable: health,
      open: true,
      handle: async (_request, reply) => {
        const answer = await healthOf(services, init, startedAt)
        if (!answer.ok) reply.code(503)
        return answer
      },
    }),
    'GET /routes': define({ response: routesAnswer, handle: async () => ({ ok: true, routes: ROUTES }) }),
    'GET /openapi.json': define({ response: openapiDocument, handle: async () => document() }),
  } satisfies Definitions
}

/** The part of the executor's answer to `acl_status` that `/health` uses. */
interface ExecHealth {
  readonly status: string
  readonly journal: { readonly writable: boolean } | null
}

/**
 * Answers without a token whether the daemon works, without naming its users. `ok` is false if the executor does not answer, no listener is
 * open, the audit log cannot be written, or the daemon drains.
 */
const healthOf = async (services: RestServices, init: RestInit, startedAt: number): Promise<z.infer<typeof health>> => {
  const { executor, node, links, clock } = services
  const exec = (await executor.query('acl_status').catch(() => null)) as ExecHealth | null
  const writable = exec?.journal?.writable ?? null
  return {
    ok: exec !== null && node.listening && writable !== false && !executor.isDraining,
    version: init.version,
    agent: shortId(executor.identity.agentId),
    draining: executor.isDraining,
    uptime_secs: Math.floor((clock.monotonic() - startedAt) / 1000),
    mesh: { listening: node.listening, linked_peers: links.list().length },
    exec: { status: exec?.status ?? 'executor_unreachable', journal_writable: writable },
  }
}
