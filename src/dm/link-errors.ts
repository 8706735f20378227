import { AppError, errorText, isAppError } from '../base/errors.ts'
import type { DialFailure } from '../mesh/dialler.ts'
import type { Offence } from '../mesh/penalties.ts'
import { shortId, type AgentId } from '../protocol/ids.ts'

/** Whatever ended a handshake, in the words of the error table. */
export const asAppError = (error: unknown): AppError => {
  if (isAppError(error)) return error
  if (error instanceof Error && error.name === 'TimeoutError')
    return new AppError('timeout', 'the peer did not answer in time', { cause: error })
  return new AppError('peer_rejected', `the peer ended it: ${errorText(error)}`, { cause: error })
}

/** The same for what ended while we waited for the peer, and had not let it wait before. */
export const asPeersError = (error: unknown): AppError => {
  const { code, message } = asAppError(error)
  return new AppError(code, message, { cause: error, data: { offence: 'handshake_failed' } })
}

/**
 * What the other side did wrong in a handshake that it began, or null where it may be nobody's fault. Whoever begins one
 * and does not end it has cost us signatures, unless it was ours to end the connection (`ours`); a machine that is named
 * (`known`) may lose its connection.
 */
export const offenceOf = ({ code, data }: AppError, { known, ours }: { known: boolean; ours: boolean }): Offence | null => {
  if (data['offence'] === 'bad_signature') return 'bad_signature'
  if (code === 'malformed') return 'malformed'
  return data['offence'] !== 'handshake_failed' || ours || (known && code === 'peer_unreachable') ? null : 'handshake_failed'
}

export const noAddress = (agentId: AgentId): AppError =>
  new AppError('peer_unreachable', `no address of agent ${shortId(agentId)} is known: import its card, or wait until it announces itself`, {
    data: { addresses: [] },
  })

export const allFailed = (agentId: AgentId, errors: readonly AppError[]): AppError => {
  const addresses = errors.flatMap((error) => (error.data['addresses'] as DialFailure[] | undefined) ?? [])
  const texts = errors.map((error) => error.message).join('; ')
  return new AppError('peer_unreachable', `no machine of agent ${shortId(agentId)} answered: ${texts}`, { data: { addresses } })
}
