import type * as z from 'zod'
import { shortId } from '../../protocol/ids.ts'
import { health, routesAnswer } from './answer-schemas.ts'
import type { RestComponents, RestInit } from './components.ts'
import { type Definitions, define } from './definition.ts'
import { ROUTES } from './routes.ts'
import { openapiDocument } from './schemas.ts'

export const statusRoutes = (components: RestComponents, init: RestInit, document: () => object) => {
  const startedAt = components.clock.monotonic()
  return {
    'GET /health': define({
      response: health,
      unavailable: health,
      open: true,
      handle: async (_request, reply) => {
        const answer = await healthOf(components, init, startedAt)
        if (!answer.ok) reply.code(503)
        return answer
      },
    }),
    'GET /routes': define({ response: routesAnswer, handle: async () => ({ ok: true, routes: ROUTES }) }),
    'GET /openapi.json': define({ response: openapiDocument, handle: async () => document() }),
  } satisfies Definitions
}

/** What `/health` shows of the executor's answer to `acl_status`. */
interface ExecHealth {
  readonly status: string
  readonly journal: { readonly writable: boolean } | null
}

/**
 * What anyone on this machine may know: whether it works, not whom it serves. Asking the executor
 * proves that it answers. Not `ok`: no executor, no listener, or a journal that cannot be written.
 */
const healthOf = async (components: RestComponents, init: RestInit, startedAt: number): Promise<z.infer<typeof health>> => {
  const { executor, node, links, clock } = components
  const exec = (await executor.query('acl_status').catch(() => null)) as ExecHealth | null
  const writable = exec?.journal?.writable ?? null
  return {
    ok: exec !== null && node.listening && writable !== false,
    version: init.version,
    agent: shortId(executor.identity.agentId),
    uptime_secs: Math.floor((clock.monotonic() - startedAt) / 1000),
    mesh: { listening: node.listening, linked_peers: links.list().length },
    exec: { status: exec?.status ?? 'executor_unreachable', journal_writable: writable },
  }
}
