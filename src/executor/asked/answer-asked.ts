import type { Clock } from '../../base/clock.ts'
import type { ASKED_ANSWERS } from '../../executor-api/asked-messages.ts'
import type { ToExecutor } from '../../executor-api/messages.ts'
import { cutOf } from '../../journal/refusals.ts'
import type { AskedRuns } from './asked-runs.ts'

export type AskedCall = Extract<ToExecutor, { type: keyof typeof ASKED_ANSWERS }>

/** What the network's half asks of the file of detached runs. Throws as the file does. */
export const answerAsked = async (runs: AskedRuns, clock: Clock, call: AskedCall): Promise<unknown> => {
  switch (call.type) {
    case 'asked_add': {
      const { type: _type, id: _id, argv: all, ...asked } = call
      const { argv, argv_cut = null } = cutOf(all)
      return runs.ask({ ...asked, argv, argv_cut, asked_at_ms: clock.now() })
    }
    case 'asked_page':
      return runs.page(call.after)
    case 'asked_get':
      return runs.get(call.request_id)
    case 'asked_note': {
      const { state, code, signal, denial_reason } = call
      return runs.note(call.request_id, { state, code, signal, denial_reason })
    }
    case 'asked_forget':
      return runs.forget(call.request_id)
  }
}
