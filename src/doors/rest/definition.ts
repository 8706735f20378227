import type { FastifyReply, FastifyRequest } from 'fastify'
import type * as z from 'zod'
import { AppError, isAppError } from '../../base/errors.ts'
import type { RouteKey } from './routes.ts'
import type { StreamedBody } from './run-request.ts'

/** A request whose body fits the schema of its route. */
export interface RestRequest<B, Q = undefined, P = undefined> {
  readonly body: B
  readonly query: Q
  /** Values of the names in braces in the path. */
  readonly params: P
  /** The bytes that an operator proof covers: the body as received, or the first line of a streamed body without its line feed. */
  readonly rawBody: Uint8Array
  /** The rest of a streamed body, or null for a plain body. */
  readonly streamed: StreamedBody | null
  /** Text of the operator proof; "" if the request has none. */
  readonly proof: string
  readonly headers: FastifyRequest['headers']
}

/** How one route answers. `handle` returns the JSON of a 200, or throws the error. */
export interface Definition {
  readonly body?: z.ZodType
  /** Query parameters; without it they are ignored. */
  readonly query?: z.ZodObject
  /** Names in braces in the path. */
  readonly params?: z.ZodObject
  /** JSON of a 200, or absent if the answer is always a stream. */
  readonly response?: z.ZodType
  /** JSON of a 503 that is not an error of the table. */
  readonly unavailable?: z.ZodType
  /** Media types of a streamed answer, each with the schema of one event. */
  readonly streams?: Readonly<Record<string, z.ZodType>>
  /** Media type of a plain text answer. */
  readonly text?: string
  /** Maximum size of the body in bytes; default `MAX_SMALL_BODY`. */
  readonly bodyLimit?: number
  /** What the limit means for a client, for the error message. */
  readonly bodyHolds?: string
  /** Maximum number of JSON values in the body, if it differs from the default. */
  readonly bodyValues?: number
  /** Throws if the server has no capacity for another request of this kind. Called before the body is read. */
  checkRoom?(): void
  /** Whether the route also accepts `application/x-ndjson` bodies, or `always` needs one. */
  readonly takesLines?: true | 'always'
  /** Whether the body is bytes of any type, which the handler reads as `streamed`. */
  readonly takesBytes?: boolean
  /** Whether the route needs no token. */
  readonly open?: boolean
  /** Whether the metrics token is sufficient. */
  readonly metricsToken?: boolean
  /** Whether the route requires or accepts an operator proof. */
  readonly proof?: 'needed' | 'taken'
  handle(request: RestRequest<unknown, unknown, unknown>, reply: FastifyReply): Promise<unknown>
}

interface TypedDefinition<B, Q, P> extends Omit<Definition, 'body' | 'query' | 'params' | 'handle'> {
  readonly body?: z.ZodType<B>
  readonly query?: z.ZodObject & z.ZodType<Q>
  readonly params?: z.ZodObject & z.ZodType<P>
  handle(request: RestRequest<B, Q, P>, reply: FastifyReply): Promise<unknown>
}

/** Gives `handle` the types of the schemas. The server checks body and parameters against them first. */
export const define = <B = undefined, Q = undefined, P = undefined>(definition: TypedDefinition<B, Q, P>): Definition => definition

/** A part of the routes. The compiler checks that the parts together define each route once. */
export type Definitions = Partial<Record<RouteKey, Definition>>

/** Fields of an error in an answer or in the last line of a stream. An unexpected error becomes `internal` without details. */
export const errorFields = (error: unknown): { error: string; message: string; data?: Readonly<Record<string, unknown>> } => {
  const { code, message, data } = isAppError(error) ? error : new AppError('internal')
  return { error: code, message, ...(Object.keys(data).length > 0 && { data }) }
}
