import { AppError, asAppError } from '../../base/errors.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { ExecFrame } from '../../protocol/wire/exec.ts'
import type { SignedBody } from '../exit.ts'
import type { RunPeer } from '../transport.ts'
import { type PeerKeys, readExitOf, unknownRun } from './attached-run.ts'
import { type DetachedInfo, type DetachedTarget, infoOf } from './detached-types.ts'

export const wrong = (what: string): AppError => new AppError('peer_rejected', `the answer is not to be believed: ${what}`)

export const stateOf = (frame: ExecFrame, peer: RunPeer): DetachedInfo => {
  if (frame.type !== 'detached') throw wrong(`a ${frame.type} frame came, which has no place here`)
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
    return new AppError('conflict', 'as many are attached there as may be: end one of them first', { data })
  return new AppError('peer_rejected', `the agent does not answer: ${denial_reason ?? 'without a reason'}`, { data })
}

export const saysNothing = (denial_reason: DenialReason): AppError => {
  const what = `asked once more, the agent answers ${denial_reason}, and not whether the Request before runs`
  return new AppError('peer_rejected', what, { data: { denial_reason } })
}

/** Adds to an error that the Request may have arrived. */
export const mayRun = (error: unknown): AppError => {
  const { code, message, data } = asAppError(error)
  return new AppError(code, message, { cause: error, data: { ...data, may_run: true } })
}
