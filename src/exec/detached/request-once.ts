import type { Clock } from '../../base/clock.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { DETACHED_ANSWER_MS } from '../../protocol/limits/detached.ts'
import type { ExecFrame } from '../../protocol/wire/exec.ts'
import type { RunTransport } from '../transport.ts'

const NEXT = { next: 'ask again in some seconds; where that stays, on its machine: x0xd --doctor' }

/** The stream was lost before an answer. */
export class AnswerLost extends AppError {}

/**
 * Sends one request (a frame, optionally followed by a trace frame) and resolves with the first frame of the reply. Throws `AnswerLost`
 * (`peer_unreachable`, `timeout`) if the stream is lost, `peer_rejected` if it is closed without an answer, and the signal's reason.
 */
export const requestOnce = async (
  clock: Clock,
  transport: RunTransport,
  question: readonly (ExecFrame | null)[],
  signal: AbortSignal,
): Promise<ExecFrame> => {
  const answer = Promise.withResolvers<ExecFrame>()
  // It may reject before it is awaited.
  answer.promise.catch(() => undefined)
  const lost = (code: 'timeout' | 'peer_unreachable', what: string): void => answer.reject(new AnswerLost(code, what, { data: NEXT }))
  const timer = clock.setTimeout(() => lost('timeout', 'the agent did not answer'), DETACHED_ANSWER_MS)
  const left = new AbortController()
  signal.addEventListener('abort', () => answer.reject(signal.reason), { signal: left.signal })
  try {
    signal.throwIfAborted()
    transport.onFrame = (frame) => {
      if (frame.type !== 'ack') answer.resolve(frame)
    }
    transport.onClosed = (error) => {
      if (error === null)
        answer.reject(
          new AppError('peer_rejected', 'the agent closed the stream without an answer: it stops, or is asked too often', { data: NEXT }),
        )
      else if (isAppError(error, 'malformed'))
        answer.reject(new AppError('peer_rejected', `the answer is not to be believed: ${error.message}`))
      else lost('peer_unreachable', `the connection broke before the agent answered: ${error.message}`)
    }
    if (transport.closed) throw new AnswerLost('peer_unreachable', 'the connection broke before the agent was asked', { data: NEXT })
    for (const frame of question) if (frame !== null) transport.send(frame)
    return await answer.promise
  } finally {
    timer.cancel()
    left.abort()
  }
}

/** Resolves after this time. Throws the signal's reason. */
export const pause = async (clock: Clock, ms: number, signal: AbortSignal): Promise<void> => {
  signal.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const timer = clock.setTimeout(resolve, ms)
  const onAbort = (): void => reject(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    await promise
  } finally {
    timer.cancel()
    signal.removeEventListener('abort', onAbort)
  }
}
