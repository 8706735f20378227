import { base64, requestId } from '../api-fields.ts'
import { type EventOf, type FieldTable, count, eventReader, flag, oneOf, orNull, record, yes } from '../json-table.ts'
import { DETACHED_STATES } from '../reasons.ts'
import { KEPT_THERE } from './detached-run.ts'
import { ERROR_TOLD, RUN_OUTCOME, STARTED, WARNING } from './run-events.ts'

const STATE = { request_id: requestId, state: oneOf(DETACHED_STATES) }
const END = { from: count, next: count.says('offset at which to continue') }

const attachedEvents = <D extends FieldTable>(data: D) => {
  const output = { request_id: requestId, offset: count.says('offset of the first byte'), ...data }
  return {
    state: { ...STATE, from: count, ...KEPT_THERE },
    started: STARTED,
    warning: WARNING,
    stdout: output,
    stderr: output,
    reattached: { request_id: requestId, offset: count },
    exit: { ...RUN_OUTCOME, ...END },
    end: { ...STATE, ...END },
    error: { request_id: requestId, ...ERROR_TOLD, next: count },
  }
}

/**
 * Lines of the streamed output of a detached run. The last is `exit` with the signed Exit, `end` without one (it was lost, or the run
 * continues and following stopped), or `error`.
 */
export const ATTACHED_EVENTS = attachedEvents({ data_b64: base64 })
/** The same for `RAW_RUN_TYPE`. */
export const RAW_ATTACHED_EVENTS = attachedEvents({ data_bytes: count })
export type AttachedEventJson = EventOf<typeof ATTACHED_EVENTS>
export const asAttachedEvent = eventReader('a detached run', ATTACHED_EVENTS)

const OUTCOME = orNull(record(RUN_OUTCOME)).says('result of the signed Exit; null if this call did not receive it')
/** The rest of the stored output in one response. */
export const ATTACHED_OUTPUT = { ok: yes, ...STATE, ...END, stdout_b64: base64, stderr_b64: base64, outcome: OUTCOME }
/** Result of waiting for a run, in addition to `SHOWN_RUN`. */
export const WAITED = { over: flag, outcome: OUTCOME }
