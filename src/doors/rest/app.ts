import { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type * as z from 'zod'
import { AppError, ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import { OPERATOR_PROOF_HEADER } from '../../identity/operator-proof.ts'
import { MAX_SMALL_BODY } from '../../protocol/limits/daemon.ts'
import { jsonText } from '../../protocol/lines.ts'
import { type Listener, checkHost, httpRefusalOf } from '../http.ts'
import { checkWith } from '../validation.ts'
import { ClientTokens } from './agents.ts'
import type { RestServices, RestInit } from './services.ts'
import { contactRoutes } from './contacts.ts'
import { type Definition, errorFields } from './definition.ts'
import { runsRoutes } from './detached-routes.ts'
import { eventRoutes } from './event-routes.ts'
import { parseJson } from './event-stream.ts'
import { execRoutes } from './exec-routes.ts'
import { fanoutRoutes } from './fanout.ts'
import { fileRoutes } from './file-routes.ts'
import { RequestBodyBudget, type RequestBody, counted } from './request-bodies.ts'
import { meshRoutes, statusRoutes } from './mesh-routes.ts'
import { openapi } from './openapi.ts'
import { ROUTES, type Route, type RouteKey, isPathOf, urlOf } from './routes.ts'
import { StreamedBody } from './run-request.ts'
import { terminalRoutes } from './terminal-route.ts'

/** Translates errors that fastify itself raises. */
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

/** Errors that close the connection, because the rest of the body is not read. */
const HANGS_UP = new Set<string>(['unauthorized', 'forbidden_host', 'shutting_down'])

/**
 * Answers with a row of the error table. Details of internal errors go to the log only; requests without a valid token or host are reported
 * to the audit log.
 */
export const answerError = ({ executor, log }: Pick<RestServices, 'executor' | 'log'>, thrown: unknown, reply: FastifyReply): object => {
  const error = toAppError(thrown as FastifyError, reply.request.routeOptions)
  if (thrown === reply.request.raw.errored) log.debug({ err: errorText(thrown) }, 'a client disconnected before its request was complete')
  else if (error.code === 'internal') log.error({ err: errorText(error.cause ?? error) }, 'internal error during a request')
  const refusal = httpRefusalOf(reply.request.raw, error)
  if (refusal !== null) executor.httpRefused(refusal)
  if (HANGS_UP.has(error.code) || !reply.request.raw.complete) reply.header('connection', 'close')
  if (error.code === 'unauthorized') reply.header('www-authenticate', 'Bearer')
  reply.code(ERROR_TABLE[error.code].status).type('application/json; charset=utf-8')
  // Errors have no schema, and fastify would look for one.
  return { ok: false, ...errorFields(error) }
}

export interface RestAppInit extends RestInit {
  readonly listenerOf: (request: IncomingMessage) => Listener
  /** Aborts when the server stops. */
  readonly stopping: AbortSignal
}

interface Bodies {
  readonly raw: WeakMap<FastifyRequest, Uint8Array>
  readonly streamed: WeakMap<FastifyRequest, StreamedBody>
  readonly held: WeakMap<FastifyRequest, RequestBody>
  /** Reads and drops what the client still sends when the answer is ready. */
  discardRest(body: StreamedBody | undefined): Promise<void>
}

/** Fastify must not load its compilers of JSON Schema: zod checks requests, answers are not checked, and the bundle does not contain them. */
const noCompiler = (): never => {
  throw new AppError('internal', 'the REST server does not compile JSON Schema')
}

/** How each route answers. */
export const routeDefinitions = (
  services: RestServices,
  init: RestInit,
  tokens: Pick<ClientTokens, 'signal'>,
): Record<RouteKey, Definition> => {
  const definitions: Record<RouteKey, Definition> = {
    ...statusRoutes(services, init, () => openapi(init, definitions)),
    ...contactRoutes(services, init),
    ...meshRoutes(services, tokens),
    ...execRoutes(services),
    ...terminalRoutes(services),
    ...fanoutRoutes(services),
    ...fileRoutes(services),
    ...runsRoutes(services),
    ...eventRoutes(services, tokens),
  }
  return definitions
}

/** Every route with its checks. The caller decides where it listens. */
export const buildApp = async (services: RestServices, init: RestAppInit): Promise<FastifyInstance> => {
  const app = fastify({
    exposeHeadRoutes: false,
    bodyLimit: MAX_SMALL_BODY,
    logger: false,
    schemaController: { compilersFactory: { buildValidator: noCompiler, buildSerializer: noCompiler } },
    // Hooks do not run for a path that cannot be decoded.
    frameworkErrors: (error, request, reply: FastifyReply) =>
      void reply.send(answerError(services, refusalOr(error, request.raw, init), reply)),
  })
  const tokens = new ClientTokens(services, init)
  const definitions = routeDefinitions(services, init, tokens)
  const bodies: Bodies = {
    raw: new WeakMap(),
    streamed: new WeakMap(),
    held: new WeakMap(),
    discardRest: async (body) => body?.discardRest(services.clock),
  }
  app.setValidatorCompiler(
    ({ schema }) =>
      (value: unknown) =>
        checkWith(schema as z.ZodType, value),
  )
  app.setReplySerializer(jsonText)
  app.setErrorHandler(async (error, _request, reply) => answerError(services, error, reply))
  app.setNotFoundHandler(async (request, reply) => {
    throw noRoute(request, reply)
  })
  addChecks(app, init, tokens, definitions)
  addLimits(app, services, definitions, bodies)
  addJsonParser(app, definitions, bodies)
  await app.register(async (scope) => {
    for (const row of ROUTES) addRoute(scope, row, definitions[`${row.method} ${row.path}` as RouteKey], bodies)
  })
  await app.ready()
  return app
}

/** An unknown path is `not_found`. A known path with another method gets the `Allow` header that RFC 9110 §15.5.6 requires. */
const noRoute = ({ method, url }: FastifyRequest, reply: FastifyReply): AppError => {
  const path = url.split('?', 1)[0]!
  const methods = ROUTES.filter((row) => isPathOf(row, path)).map((row) => row.method)
  if (methods.length === 0) return new AppError('not_found', 'unknown route; GET /routes lists all routes')
  reply.header('allow', methods.join(', '))
  return new AppError('method_not_allowed', `${path}: expected ${methods.join(' or ')}, not ${method}`)
}

/** The refusal of the host check if there is one, else the error. */
const refusalOr = (error: unknown, request: IncomingMessage, init: RestAppInit): unknown => {
  try {
    checkHost(request, init.listenerOf(request))
    return error
  } catch (refusal) {
    return refusal
  }
}

/** Definition of the matched route, or undefined if no route matched. */
const definitionOf = (request: FastifyRequest, definitions: Record<string, Definition>): Definition | undefined => {
  const { path } = request.routeOptions.config as { readonly path?: string }
  return definitions[`${request.method} ${path}`]
}

/**
 * Refuses a request that arrives before the previous one on its connection is answered. Node does not report a disconnect to such a
 * response, so its resources would never be released.
 */
const refusePipelined = (request: IncomingMessage, response: ServerResponse): void => {
  if (response.socket !== null) return
  // An unread body would also hide the disconnect from the previous request.
  request.resume()
  throw new AppError('bad_request', 'the previous request on this connection is not answered yet')
}

const addChecks = (app: FastifyInstance, init: RestAppInit, tokens: ClientTokens, definitions: Record<string, Definition>): void => {
  app.addHook('onRequest', async (request, reply) => {
    reply.headers({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' })
    refusePipelined(request.raw, reply.raw)
    checkHost(request.raw, init.listenerOf(request.raw))
    const definition = definitionOf(request, definitions)
    if (definition?.open !== true) tokens.check(request.headers.authorization, definition?.metricsToken === true)
    if (init.stopping.aborted) throw new AppError('shutting_down')
  })
}

const isLines = ({ headers }: FastifyRequest): boolean => headers['content-type']?.startsWith('application/x-ndjson') === true

/** Checks capacity, size and time before a byte of the body is read. */
const addLimits = (app: FastifyInstance, services: RestServices, definitions: Record<string, Definition>, bodies: Bodies): void => {
  const all = new RequestBodyBudget(services)
  app.addHook('preParsing', async (request, reply, payload) => {
    const definition = definitionOf(request, definitions)
    definition?.checkRoom?.()
    const length = Number(request.headers['content-length'] ?? (request.headers['transfer-encoding'] === undefined ? 0 : Infinity))
    if (length === 0) return payload
    const held = all.admit(request.raw, reply.raw)
    bodies.held.set(request, held)
    // `StreamedBody` counts what it keeps.
    if (isLines(request) || definition?.takesBytes === true) return payload
    request.raw.once('end', () => held.whole())
    return length <= MAX_SMALL_BODY ? payload : payload.pipe(counted(held))
  })
}

/** Parses JSON bodies and keeps their bytes, because operator proofs cover them. */
const addJsonParser = (app: FastifyInstance, definitions: Record<string, Definition>, bodies: Bodies): void => {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, async (request: FastifyRequest, bytes: Buffer) => {
    bodies.raw.set(request, bytes)
    return parseJson(bytes, definitionOf(request, definitions)?.bodyValues)
  })
}

const addLinesParser = (scope: FastifyInstance, bodies: Bodies): void => {
  // A run may end before its request body. Closing the connection ends such a body.
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

/** Passes on a body of any type, or of none, without reading it. */
const addBytesParser = (scope: FastifyInstance, bodies: Bodies): void => {
  scope.addHook('onSend', async (request) => bodies.discardRest(bodies.streamed.get(request)))
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', async (request: FastifyRequest, payload: IncomingMessage) => {
    bodies.streamed.set(request, new StreamedBody({ body: payload, held: bodies.held.get(request) ?? null }))
    return undefined
  })
}

const proofOf = (header: string | string[] | undefined): string => (typeof header === 'string' ? header : '')

const addRoute = (parent: FastifyInstance, row: Route, definition: Definition, bodies: Bodies): void => {
  parent.register(async (scope) => {
    if (definition.takesLines !== undefined) addLinesParser(scope, bodies)
    if (definition.takesBytes === true) addBytesParser(scope, bodies)
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
