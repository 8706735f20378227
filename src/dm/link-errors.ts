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

/** What the other side did wrong in a handshake that it began, or null where it may be nobody's fault. */
export const offenceOf = ({ code, data }: AppError): Offence | null => {
  if (data['offence'] === 'bad_signature') return 'bad_signature'
  if (code === 'malformed') return 'malformed'
  return code === 'timeout' ? 'handshake_failed' : null
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
