import type { Clock } from '../../base/clock.ts'
import { AppError, asAppError, isAppError } from '../../base/errors.ts'
import { DETACHED_ANSWER_MS } from '../../protocol/limits/detached.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { ExecFrame } from '../../protocol/wire/exec.ts'
import type { SignedBody } from '../exit.ts'
import type { RunPeer, RunTransport } from '../transport.ts'
import { type PeerKeys, readExitOf, unknownRun } from './attached-run.ts'
import { type DetachedInfo, type DetachedTarget, infoOf } from './detached-types.ts'

const NEXT = { next: 'try again in some seconds; if it fails again, on its machine: x0xd --doctor' }

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
          new AppError('peer_rejected', 'the agent closed the stream without an answer: it is stopping, or limits the rate', {
            data: NEXT,
          }),
        )
      else if (isAppError(error, 'malformed')) answer.reject(new AppError('peer_rejected', `the answer is not valid: ${error.message}`))
      else lost('peer_unreachable', `the connection broke before the agent answered: ${error.message}`)
    }
    if (transport.closed)
      throw new AnswerLost('peer_unreachable', 'the connection was lost before the agent received the request', { data: NEXT })
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

export const wrong = (what: string): AppError => new AppError('peer_rejected', `invalid answer: ${what}`)

export const stateOf = (frame: ExecFrame, peer: RunPeer): DetachedInfo => {
  if (frame.type !== 'detached') throw wrong(`unexpected ${frame.type} frame`)
  return infoOf(frame, peer)
}

export const known = (info: DetachedInfo): DetachedInfo => {
  if (info.state === 'unknown' || info.state === 'expired') throw unknownRun(info.state)
  return info
}

/** The error for an Exit that the host sent instead of a state. */
export const refusal = (frame: SignedBody, asked: DetachedTarget, peer: RunPeer, own: PeerKeys): AppError => {
  const read = readExitOf(frame, asked, peer, own)
  if (typeof read === 'string') return wrong(read)
  const { denial_reason } = read.exit
  const data = { denial_reason }
  if (denial_reason === 'concurrency_limit_reached')
    return new AppError('conflict', 'the target allows no more attached clients: end one first', { data })
  return new AppError('peer_rejected', `the agent does not answer: ${denial_reason ?? 'without a reason'}`, { data })
}

export const saysNothing = (denial_reason: DenialReason): AppError => {
  const what = `the agent now answers ${denial_reason}, and does not say whether the earlier request runs`
  return new AppError('peer_rejected', what, { data: { denial_reason } })
}

/** Adds to an error that the Request may have arrived. */
export const mayRun = (error: unknown): AppError => {
  const { code, message, data } = asAppError(error)
  return new AppError(code, message, { cause: error, data: { ...data, may_run: true } })
}
