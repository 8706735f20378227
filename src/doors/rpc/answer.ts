import { errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { failure, isCall, methodNotFound, success, type RpcCall, type RpcMessage, type RpcResponse } from './message.ts'
import type { Methods } from './methods.ts'
import { isMethod, METHODS } from './schemas.ts'

/** What a message is answered, and what happens once that is said. */
export interface MessageAnswer {
  /** Null: nothing is said, to notifications. */
  readonly said: object | null
  afterwards(): void
}

/** Does what one message asks: a batch all at once, and answered when all of it is done. */
export const answerMessage = async (
  { batch, parts }: RpcMessage,
  components: { readonly methods: Methods; readonly log: Logger },
): Promise<MessageAnswer> => {
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
  { methods, log }: { readonly methods: Methods; readonly log: Logger },
  works: (() => void)[],
): Promise<RpcResponse | null> => {
  if (!isMethod(method)) return id === undefined ? null : methodNotFound(id, method, METHODS)
  try {
    const answered = await methods.call(method, params)
    if (answered.afterwards !== undefined) works.push(answered.afterwards)
    return id === undefined ? null : success(id, answered.result)
  } catch (error) {
    if (!isAppError(error)) log.error({ err: errorText(error), method }, 'a method failed inside')
    return id === undefined ? null : failure(id, error)
  }
}
