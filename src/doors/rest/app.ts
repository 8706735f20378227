import { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type * as z from 'zod'
import { AppError, ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import { OPERATOR_PROOF_HEADER } from '../../identity/operator-proof.ts'
import { MAX_SMALL_BODY } from '../../protocol/limits/daemon.ts'
import { jsonText } from '../../protocol/lines.ts'
import { type Listener, checkHost, httpRefusalOf } from '../http.ts'
import { checkWith } from '../validation.ts'
import { Callers } from './agents.ts'
import type { RestComponents, RestInit } from './components.ts'
import { contactRoutes } from './contacts.ts'
import { type Definition, errorFields } from './definition.ts'
import { runsRoutes } from './detached-routes.ts'
import { eventRoutes } from './event-routes.ts'
import { parseJson } from './event-stream.ts'
import { execRoutes } from './exec-routes.ts'
import { fanoutRoutes } from './fanout.ts'
import { RequestBodyBudget, type RequestBody, counted } from './request-bodies.ts'
import { meshRoutes, statusRoutes } from './mesh-routes.ts'
import { openapi } from './openapi.ts'
import { ROUTES, type Route, type RouteKey, isPathOf, urlOf } from './routes.ts'
import { StreamedBody } from './run-request.ts'

/** What the framework itself refuses, in our words. */
const toAppError = (error: FastifyError, route: FastifyRequest['routeOptions']): AppError => {
  if (isAppError(error)) return error
  if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE') {
    const { bodyHolds } = route.config as Pick<Definition, 'bodyHolds'>
    const meaning = bodyHolds === undefined ? '' : `: ${bodyHolds}`
    return new AppError('too_large', `the body is larger than ${route.bodyLimit} bytes${meaning}`, { cause: error })
  }
  if (error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') {
    return new AppError('bad_request', 'Content-Type: expected application/json', { cause: error })
  }
  const ours = error.statusCode === undefined || error.statusCode >= 500
  return ours ? new AppError('internal', undefined, { cause: error }) : new AppError('bad_request', errorText(error), { cause: error })
}

/** Errors whose request may have a body that nobody will read. */
const HANGS_UP = new Set<string>(['unauthorized', 'forbidden_host', 'shutting_down'])

/** One row of the error table as JSON. What went wrong inside is for the log alone; who is refused has a line of the journal. */
export const answerError = ({ executor, log }: Pick<RestComponents, 'executor' | 'log'>, thrown: unknown, reply: FastifyReply): object => {
  const error = toAppError(thrown as FastifyError, reply.request.routeOptions)
  if (thrown === reply.request.raw.errored) log.debug({ err: errorText(thrown) }, 'a caller went away before its request was whole')
  else if (error.code === 'internal') log.error({ err: errorText(error.cause ?? error) }, 'a request failed inside')
  const refusal = httpRefusalOf(reply.request.raw, error)
  if (refusal !== null) executor.httpRefused(refusal)
  if (HANGS_UP.has(error.code) || !reply.request.raw.complete) reply.header('connection', 'close')
  if (error.code === 'unauthorized') reply.header('www-authenticate', 'Bearer')
  reply.code(ERROR_TABLE[error.code].status).type('application/json; charset=utf-8')
  // Fastify would look for a schema of the answer; errors have one shape and need none.
  return { ok: false, ...errorFields(error) }
}

export interface RestAppInit extends RestInit {
  /** Which listener a request came by. */
  readonly listenerOf: (request: IncomingMessage) => Listener
  /** Aborts when the door stops. */
  readonly stopping: AbortSignal
}

/** Bodies as they came, while their request lives. */
interface Bodies {
  readonly raw: WeakMap<FastifyRequest, Uint8Array>
  readonly streamed: WeakMap<FastifyRequest, StreamedBody>
  readonly held: WeakMap<FastifyRequest, RequestBody>
  /** What a caller still sends when the answer is ready. */
  discardRest(body: StreamedBody | undefined): Promise<void>
}

/** zod checks, and answers have no schema: without this fastify would load its compilers of JSON Schema, which the bundle does not have. */
const noCompiler = (): never => {
  throw new AppError('internal', 'nothing here compiles JSON Schema')
}

/** Every route of the door behind its checks; whoever has it decides where it listens. */
export const buildApp = async (components: RestComponents, init: RestAppInit): Promise<FastifyInstance> => {
  const app = fastify({
    exposeHeadRoutes: false,
    bodyLimit: MAX_SMALL_BODY,
    logger: false,
    schemaController: { compilersFactory: { buildValidator: noCompiler, buildSerializer: noCompiler } },
    // A path that cannot be decoded meets no hook.
    frameworkErrors: (error, request, reply: FastifyReply) =>
      void reply.send(answerError(components, refusalOr(error, request.raw, init), reply)),
  })
  const callers = new Callers(components, init)
  const definitions: Record<RouteKey, Definition> = {
    ...statusRoutes(components, init, () => openapi(init, definitions)),
    ...contactRoutes(components, init),
    ...meshRoutes(components, callers),
    ...execRoutes(components),
    ...fanoutRoutes(components),
    ...runsRoutes(components),
    ...eventRoutes(components, callers),
  }
  const bodies: Bodies = {
    raw: new WeakMap(),
    streamed: new WeakMap(),
    held: new WeakMap(),
    discardRest: async (body) => body?.discardRest(components.clock),
  }
  app.setValidatorCompiler(
    ({ schema }) =>
      (value: unknown) =>
        checkWith(schema as z.ZodType, value),
  )
  app.setReplySerializer(jsonText)
  app.setErrorHandler(async (error, _request, reply) => answerError(components, error, reply))
  app.setNotFoundHandler(async (request, reply) => {
    throw noRoute(request, reply)
  })
  addChecks(app, init, callers, definitions)
  addLimits(app, components, definitions, bodies)
  addJsonParser(app, definitions, bodies)
  await app.register(async (scope) => {
    for (const row of ROUTES) addRoute(scope, row, definitions[`${row.method} ${row.path}` as RouteKey], bodies)
  })
  await app.ready()
  return app
}

/** A known path with another method is told apart, with the `Allow` header that RFC 9110 §15.5.6 asks for. */
const noRoute = ({ method, url }: FastifyRequest, reply: FastifyReply): AppError => {
  const path = url.split('?', 1)[0]!
  const methods = ROUTES.filter((row) => isPathOf(row, path)).map((row) => row.method)
  if (methods.length === 0) return new AppError('not_found', 'there is no such route; GET /routes lists them')
  reply.header('allow', methods.join(', '))
  return new AppError('method_not_allowed', `${path}: expected ${methods.join(' or ')}, not ${method}`)
}

/** What the check of the host says of a request, where it says anything; else the error. */
const refusalOr = (error: unknown, request: IncomingMessage, init: RestAppInit): unknown => {
  try {
    checkHost(request, init.listenerOf(request))
    return error
  } catch (refusal) {
    return refusal
  }
}

/** By the path of its row, which a route that was found has in its configuration. */
const definitionOf = (request: FastifyRequest, definitions: Record<string, Definition>): Definition | undefined => {
  const { path } = request.routeOptions.config as { readonly path?: string }
  return definitions[`${request.method} ${path}`]
}

/** An answer that waits for the one before it on its connection is not told that its caller leaves, and what it holds would be held for good. */
const refusePipelined = (request: IncomingMessage, response: ServerResponse): void => {
  if (response.socket !== null) return
  // A body that nobody reads would hide that its caller leaves the request before, too.
  request.resume()
  throw new AppError('bad_request', 'a request came before the one before it on this connection was answered')
}

const addChecks = (app: FastifyInstance, init: RestAppInit, callers: Callers, definitions: Record<string, Definition>): void => {
  app.addHook('onRequest', async (request, reply) => {
    reply.headers({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' })
    refusePipelined(request.raw, reply.raw)
    checkHost(request.raw, init.listenerOf(request.raw))
    const definition = definitionOf(request, definitions)
    if (definition?.open !== true) callers.check(request.headers.authorization, definition?.metricsToken === true)
    if (init.stopping.aborted) throw new AppError('shutting_down')
  })
}

const isLines = ({ headers }: FastifyRequest): boolean => headers['content-type']?.startsWith('application/x-ndjson') === true

/** Before a byte of a body is read: whether there is room for what it asks for, for how much of it, and for how long. */
const addLimits = (app: FastifyInstance, components: RestComponents, definitions: Record<string, Definition>, bodies: Bodies): void => {
  const all = new RequestBodyBudget(components)
  app.addHook('preParsing', async (request, reply, payload) => {
    definitionOf(request, definitions)?.checkRoom?.()
    const length = Number(request.headers['content-length'] ?? (request.headers['transfer-encoding'] === undefined ? 0 : Infinity))
    if (length === 0) return payload
    const held = all.admit(request.raw, reply.raw)
    bodies.held.set(request, held)
    // Of lines only some are kept: their reader counts.
    if (isLines(request)) return payload
    request.raw.once('end', () => held.whole())
    return length <= MAX_SMALL_BODY ? payload : payload.pipe(counted(held))
  })
}

/** The only type of body, but for one route; its bytes are kept because operators prove them. */
const addJsonParser = (app: FastifyInstance, definitions: Record<string, Definition>, bodies: Bodies): void => {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, async (request: FastifyRequest, bytes: Buffer) => {
    bodies.raw.set(request, bytes)
    return parseJson(bytes, definitionOf(request, definitions)?.bodyValues)
  })
}

const addLinesParser = (scope: FastifyInstance, bodies: Bodies): void => {
  // A run may be over before its body is; what nobody will read then ends with the connection.
  scope.addHook('onRequest', async (request, reply) => {
    if (isLines(request)) reply.header('connection', 'close')
  })
  scope.addHook('onSend', async (request) => bodies.discardRest(bodies.streamed.get(request)))
  scope.addContentTypeParser('application/x-ndjson', async (request: FastifyRequest, payload: IncomingMessage) => {
    const streamed = new StreamedBody({ body: payload, held: bodies.held.get(request) ?? null })
    bodies.streamed.set(request, streamed)
    const head = await streamed.head()
    bodies.raw.set(request, head.bytes)
    return head.value
  })
}

const proofOf = (header: string | string[] | undefined): string => (typeof header === 'string' ? header : '')

const addRoute = (parent: FastifyInstance, row: Route, definition: Definition, bodies: Bodies): void => {
  parent.register(async (scope) => {
    if (definition.takesLines === true) addLinesParser(scope, bodies)
    scope.route({
      method: row.method,
      url: urlOf(row),
      bodyLimit: definition.bodyLimit ?? MAX_SMALL_BODY,
      config: { path: row.path, ...(definition.bodyHolds !== undefined && { bodyHolds: definition.bodyHolds }) },
      schema: {
        ...(definition.body && { body: definition.body }),
        ...(definition.query && { querystring: definition.query }),
        ...(definition.params && { params: definition.params }),
      },
      handler: async (request, reply) =>
        definition.handle(
          {
            body: request.body,
            query: request.query,
            params: request.params,
            rawBody: bodies.raw.get(request) ?? new Uint8Array(0),
            streamed: bodies.streamed.get(request) ?? null,
            proof: proofOf(request.headers[OPERATOR_PROOF_HEADER]),
            headers: request.headers,
          },
          reply,
        ),
    })
  })
}
