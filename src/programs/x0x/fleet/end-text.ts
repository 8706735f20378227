import { errnoOf, errorText } from '../../../base/errors.ts'
import { signalName } from '../../../base/signal-name.ts'
import type { FanoutHostJson } from '../../../protocol/fanout.ts'
import { cutText } from '../cut-output.ts'
import { killedBy } from '../outcome.ts'

type Ended = Pick<FanoutHostJson, 'end' | 'code' | 'signal' | 'incomplete' | 'warnings'>

/** How a host ended, in a few words; empty where all went well. */
export const endText = ({ end, code, signal, incomplete, warnings }: Ended): string => {
  if (end !== 'ran') return end.replaceAll('_', ' ')
  const ended = signal === null ? (code === 0 ? '' : `exit status ${code}`) : (signalName(signal) ?? `signal ${signal}`)
  const by = killedBy({ warnings }) ?? ''
  return [ended, by, incomplete ? 'output is missing' : '', cutText({ warnings }) ?? ''].filter((text) => text !== '').join(', ')
}

export const WENT_AWAY = 'the local daemon went away before the end, and what it asked for ends without it'

/** Why the answer of the daemon broke off. */
export const brokenBy = (error: unknown): string => (errnoOf(error) === 'ECONNRESET' ? WENT_AWAY : errorText(error))
