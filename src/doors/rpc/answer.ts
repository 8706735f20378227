import { NEVER } from '../../base/abort.ts'
import { ERROR_TABLE, errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { BatchAnswers, type CallSlots, type CallSlot } from './call-slots.ts'
import { METHOD_NOT_FOUND, type RpcCall, type RpcMessage, type RpcResponse, failure, isCall, methodNotFound, success } from './message.ts'
import type { Methods } from './methods.ts'
import type { RpcMetrics } from './metrics.ts'
import { METHODS, isMethod } from './schemas.ts'
import type { Answered } from './session-methods.ts'

/** The answer to a message. It occupies a call slot until `taken` or `lost` is called. */
export interface MessageAnswer {
  /** The answer or its text, or null for notifications, which have no answer. */
  readonly said: object | string | null
  /** Runs after the answer was sent. */
  afterwards(): void
  taken(): void
  /** The client did not get the answer. */
  lost(): void
}

export interface AnswerComponents {
  readonly methods: Methods
  readonly metrics: RpcMetrics | null
  readonly log: Logger
  readonly places: CallSlots
  /**
   * Aborts when the client no longer waits, so that calls without a slot are dropped. With null, calls run even if the client disconnects.
   */
  readonly gone: AbortSignal | null
}

/** The end of one part of a message. The last part keeps its slot, `place`, until the whole answer was sent. */
interface Done {
  readonly response: RpcResponse | null
  readonly answered: Answered | null
  readonly place: CallSlot | null
}

/** Performs the calls of a message. Those of a batch run concurrently and are answered together. */
export const answerMessage = async (message: RpcMessage, deps: AnswerComponents): Promise<MessageAnswer> => {
  const batch = message.batch
    ? new BatchAnswers({ room: deps.places.batches }, { waits: message.parts.some((part) => waits(part, deps.methods)) })
    : null
  const done = await Promise.all(startAll(message, batch, deps))
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

/** Whether the call may take as long as a program or an approval. */
const waits = (part: RpcCall | RpcResponse, methods: Methods): boolean => {
  if (!isCall(part)) return false
  const { timeout_ms: timeout, session_id: session } = part.params
  if (part.method === 'exec.start' || part.method === 'pty.open') return methods.mayAsk(session)
  return (part.method === 'exec.wait' && timeout !== 0) || (part.method === 'session.events' && timeout !== undefined && timeout !== 0)
}

const startAll = ({ parts }: RpcMessage, batch: BatchAnswers | null, deps: AnswerComponents): Promise<Done>[] => {
  let unfinished = parts.length
  const one = async (part: RpcCall | RpcResponse, at: number): Promise<Done> => {
    // The client has disconnected.
    const place = await deps.places.enter(deps.gone ?? NEVER).catch(() => null)
    const { response, answered } =
      place === null ? NOTHING : isCall(part) ? await perform(part, place, deps) : { response: part, answered: null }
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

/** A notification is performed but not answered (JSON-RPC 2.0, 4.1). */
const perform = async (
  { id, method, params, content }: RpcCall,
  place: CallSlot,
  { methods, metrics, log, gone }: AnswerComponents,
): Promise<Omit<Done, 'place'>> => {
  if (!isMethod(method)) {
    metrics?.answered('unknown', METHOD_NOT_FOUND)
    return { response: id === undefined ? null : methodNotFound(id, method, METHODS), answered: null }
  }
  try {
    const answered = await methods.call(method, params, { id: id ?? null, gone, place, content })
    metrics?.answered(method, 'ok')
    return { response: id === undefined ? null : success(id, answered.result), answered }
  } catch (error) {
    metrics?.answered(method, ERROR_TABLE[isAppError(error) ? error.code : 'internal'].rpc)
    if (!isAppError(error) && gone?.aborted !== true) log.error({ err: errorText(error), method }, 'internal error in a method')
    return { response: id === undefined ? null : failure(id, error), answered: null }
  }
}
