import { NEVER } from '../../base/abort.ts'
import { ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { BatchAnswers, type CallSlots, type CallSlot } from './call-slots.ts'
import { METHOD_NOT_FOUND, type RpcCall, type RpcMessage, type RpcResponse, failure, isCall, methodNotFound, success } from './message.ts'
import type { Methods } from './methods.ts'
import type { RpcMetrics } from './metrics.ts'
import { METHODS, isMethod } from './schemas.ts'
import type { Answered } from './session-methods.ts'

/** What a message is answered. It has a place among the calls in work until `taken` or `lost` is called. */
export interface MessageAnswer {
  /** An answer, or the text of one. Null: nothing is said, to notifications. */
  readonly said: object | string | null
  /** What happens once it is said. */
  afterwards(): void
  /** Nobody holds it any more. */
  taken(): void
  /** It came to nobody. */
  lost(): void
}

export interface AnswerComponents {
  readonly methods: Methods
  readonly metrics: RpcMetrics | null
  readonly log: Logger
  readonly places: CallSlots
  /** Nobody waits for the answer any more: what has no place by then is not done. Null: what is asked is done, whoever is there. */
  readonly gone: AbortSignal | null
}

/** One part of a message is done. `place`: the last part keeps its own until the whole answer is out. */
interface Done {
  readonly response: RpcResponse | null
  readonly answered: Answered | null
  readonly place: CallSlot | null
}

/** Does what one message asks; of a batch all at once, and answered when all of it is done. */
export const answerMessage = async (message: RpcMessage, components: AnswerComponents): Promise<MessageAnswer> => {
  const batch = message.batch
    ? new BatchAnswers({ room: components.places.batches }, { waits: message.parts.some((part) => waits(part, components.methods)) })
    : null
  const done = await Promise.all(startAll(message, batch, components))
  const answered = done.flatMap((one) => one.answered ?? [])
  const place = done.find((one) => one.place !== null)?.place ?? null
  const taken = (): void => {
    batch?.release()
    place?.leave()
  }
  return {
    said: batch === null ? (done[0]?.response ?? null) : batch.text,
    afterwards: () => answered.forEach((one) => one.afterwards?.()),
    taken,
    lost: () => {
      taken()
      answered.forEach((one) => one.lost?.())
    },
  }
}

/** May it take as long as a program, or as a human who is asked? */
const waits = (part: RpcCall | RpcResponse, methods: Methods): boolean => {
  if (!isCall(part)) return false
  const { timeout_ms: timeout, session_id: session } = part.params
  if (part.method === 'exec.start' || part.method === 'pty.open') return methods.mayAsk(session)
  return (part.method === 'exec.wait' && timeout !== 0) || (part.method === 'session.events' && timeout !== undefined && timeout !== 0)
}

const startAll = ({ parts }: RpcMessage, batch: BatchAnswers | null, components: AnswerComponents): Promise<Done>[] => {
  let unfinished = parts.length
  const one = async (part: RpcCall | RpcResponse, at: number): Promise<Done> => {
    // Whoever asked is gone.
    const place = await components.places.enter(components.gone ?? NEVER).catch(() => null)
    const { response, answered } =
      place === null ? NOTHING : isCall(part) ? await perform(part, place, components) : { response: part, answered: null }
    const fits = response === null || batch === null || batch.add(at, response)
    if (!fits) answered?.lost?.()
    unfinished -= 1
    if (unfinished > 0) place?.leave()
    return {
      response: batch === null ? response : null,
      answered: fits || answered === null ? answered : { ...answered, lost: () => undefined },
      place: unfinished > 0 ? null : place,
    }
  }
  return parts.splice(0).map(one)
}

const NOTHING = { response: null, answered: null } as const

/** No response to a notification, which is performed and not answered (JSON-RPC 2.0, 4.1). */
const perform = async (
  { id, method, params }: RpcCall,
  place: CallSlot,
  { methods, metrics, log, gone }: AnswerComponents,
): Promise<Omit<Done, 'place'>> => {
  if (!isMethod(method)) {
    metrics?.answered('unknown', METHOD_NOT_FOUND)
    return { response: id === undefined ? null : methodNotFound(id, method, METHODS), answered: null }
  }
  try {
    const answered = await methods.call(method, params, { id: id ?? null, gone, place })
    metrics?.answered(method, 'ok')
    return { response: id === undefined ? null : success(id, answered.result), answered }
  } catch (error) {
    metrics?.answered(method, ERROR_TABLE[isAppError(error) ? error.code : 'internal'].rpc)
    if (!isAppError(error) && gone?.aborted !== true) log.error({ err: errorText(error), method }, 'a method failed inside')
    return { response: id === undefined ? null : failure(id, error), answered: null }
  }
}
