import type { FastifyReply, FastifyRequest } from 'fastify'
import type * as z from 'zod'
import { AppError, isAppError } from '../../base/errors.ts'
import type { RouteKey } from './routes.ts'
import type { StreamedBody } from './run-request.ts'

/** A request whose body fits its route's schema. */
export interface RestRequest<B, Q = undefined, P = undefined> {
  readonly body: B
  /** The parameters behind the path. */
  readonly query: Q
  /** What stands in the path in place of names in braces. */
  readonly params: P
  /** The bytes of the body as they came, of a streamed one its first line without the line feed: what is proven. */
  readonly rawBody: Uint8Array
  /** The rest of a streamed body; null for a plain one. */
  readonly streamed: StreamedBody | null
  /** The text of an operator's proof; "" where there is none. */
  readonly proof: string
  readonly headers: FastifyRequest['headers']
}

/** How one route is answered. What `handle` returns is the JSON of a 200; what it throws, the error. */
export interface Definition {
  readonly body?: z.ZodType
  /** An object of the parameters behind the path; without it those are not looked at. */
  readonly query?: z.ZodObject
  /** An object of the names in braces of the path. */
  readonly params?: z.ZodObject
  /** The JSON of a 200; absent where that is always a stream. */
  readonly response?: z.ZodType
  /** The JSON of a 503 that is no error of the table. */
  readonly unavailable?: z.ZodType
  /** Media types of a streamed answer, and what one of its objects is. */
  readonly streams?: Readonly<Record<string, z.ZodType>>
  /** Media type of an answer that is a text. */
  readonly text?: string
  /** The largest body, in bytes. Default `MAX_SMALL_BODY`. */
  readonly bodyLimit?: number
  /** What that means to a caller whose body is larger. */
  readonly bodyHolds?: string
  /** Values in its JSON, where that may have more than others. */
  readonly bodyValues?: number
  /** Throws what it would be answered for want of room, before its body is read. */
  checkRoom?(): void
  /** Takes `application/x-ndjson` bodies too. */
  readonly takesLines?: boolean
  /** Needs no token. */
  readonly open?: boolean
  /** The token for metrics is enough. */
  readonly metricsToken?: boolean
  /** Carries an operator's proof in its header, or may. */
  readonly proof?: 'needed' | 'taken'
  handle(request: RestRequest<unknown, unknown, unknown>, reply: FastifyReply): Promise<unknown>
}

interface TypedDefinition<B, Q, P> extends Omit<Definition, 'body' | 'query' | 'params' | 'handle'> {
  readonly body?: z.ZodType<B>
  readonly query?: z.ZodObject & z.ZodType<Q>
  readonly params?: z.ZodObject & z.ZodType<P>
  handle(request: RestRequest<B, Q, P>, reply: FastifyReply): Promise<unknown>
}

/** Body and parameters were checked against the definition's own schemas, which makes their types true. */
export const define = <B = undefined, Q = undefined, P = undefined>(definition: TypedDefinition<B, Q, P>): Definition => definition

/** Of some of the routes; which file has which is for the compiler to see. */
export type Definitions = Partial<Record<RouteKey, Definition>>

/** An error as an answer and the last line of a stream tell it; of what is none of ours no more than that. */
export const errorFields = (error: unknown): { error: string; message: string; data?: Readonly<Record<string, unknown>> } => {
  const { code, message, data } = isAppError(error) ? error : new AppError('internal')
  return { error: code, message, ...(Object.keys(data).length > 0 && { data }) }
}
