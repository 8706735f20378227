import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { AppError, ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import { httpRefusalOf } from '../access.ts'
import type { RestComponents } from './components.ts'
import type { Definition } from './definition.ts'
import { errorFields } from './error-fields.ts'

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
