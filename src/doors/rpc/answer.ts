import { ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { failure, isCall, METHOD_NOT_FOUND, methodNotFound, success, type RpcCall, type RpcMessage, type RpcResponse } from './message.ts'
import type { Methods } from './methods.ts'
import type { RpcMetrics } from './metrics.ts'
import { isMethod, METHODS } from './schemas.ts'

/** What a message is answered, and what happens once that is said. */
export interface MessageAnswer {
  /** Null: nothing is said, to notifications. */
  readonly said: object | null
  afterwards(): void
}

export interface AnswerComponents {
  readonly methods: Methods
  readonly metrics: RpcMetrics | null
  readonly log: Logger
  /** Nobody waits for the answer any more; without it, while there is the connection somebody does. */
  readonly gone?: AbortSignal
}

/** Does what one message asks: a batch all at once, and answered when all of it is done. */
export const answerMessage = async ({ batch, parts }: RpcMessage, components: AnswerComponents): Promise<MessageAnswer> => {
  const works: (() => void)[] = []
  const responses = await Promise.all(parts.map(async (part) => (isCall(part) ? perform(part, components, works) : part)))
  const said = responses.filter((response) => response !== null)
  const afterwards = (): void => {
    for (const work of works) work()
  }
  return { said: said.length === 0 ? null : batch ? said : said[0]!, afterwards }
}

/** Null for a notification, which is performed and not answered (JSON-RPC 2.0, 4.1). */
const perform = async (
  { id, method, params }: RpcCall,
  { methods, metrics, log, gone }: AnswerComponents,
  works: (() => void)[],
): Promise<RpcResponse | null> => {
  if (!isMethod(method)) {
    metrics?.answered('unknown', METHOD_NOT_FOUND)
    return id === undefined ? null : methodNotFound(id, method, METHODS)
  }
  try {
    const answered = await methods.call(method, params, gone)
    metrics?.answered(method, 'ok')
    if (answered.afterwards !== undefined) works.push(answered.afterwards)
    return id === undefined ? null : success(id, answered.result)
  } catch (error) {
    metrics?.answered(method, ERROR_TABLE[isAppError(error) ? error.code : 'internal'].rpc)
    if (!isAppError(error)) log.error({ err: errorText(error), method }, 'a method failed inside')
    return id === undefined ? null : failure(id, error)
  }
}
