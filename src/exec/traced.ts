import { isAppError } from '../base/errors.ts'
import type { ExecFrame } from '../protocol/exec.ts'
import { type RequestId, fromHex, toHex } from '../protocol/ids.ts'
import type { TraceContext } from '../protocol/trace-context.ts'
import type { SpanAttributes } from './run-spans.ts'
import type { RunOutcome } from './run-spec.ts'
import type { RunTraces } from './run-traces.ts'
import type { RunPeer } from './transport.ts'
import { OWN_LINK } from './transports.ts'

/** What follows the runs that we ask for. */
export type AskedTraces = Pick<RunTraces, 'asked' | 'answered'>

export interface Traced {
  readonly requestId: RequestId
  /** As its caller says; absent: it begins a trace. */
  readonly trace?: TraceContext | 'not_sampled' | undefined
}

/** Does what is followed. `ended`: what its answer says of it, and whether it failed. Absent traces: none are kept. */
export const traced = async <Answer>(
  kept: AskedTraces | null | undefined,
  { requestId, trace }: Traced,
  work: (context: TraceContext | null) => Promise<Answer>,
  ended: (answer: Answer) => { readonly attributes: SpanAttributes; readonly failed: boolean },
): Promise<Answer> => {
  if (trace === 'not_sampled' || !kept) return work(null)
  const context = kept.asked(requestId, trace ?? null)
  try {
    const answer = await work(context)
    const { attributes, failed } = ended(answer)
    kept.answered(requestId, attributes, failed)
    return answer
  } catch (error) {
    kept.answered(requestId, { 'error.type': isAppError(error) ? error.code : 'internal' }, true)
    throw error
  }
}

export const outcomeOfTrace = ({ code, denial_reason, incomplete, ok }: RunOutcome): { attributes: SpanAttributes; failed: boolean } => ({
  attributes: {
    'x0x.outcome': incomplete ? 'incomplete' : denial_reason === null ? 'ended' : 'denied',
    ...(denial_reason !== null && { 'x0x.denial_reason': denial_reason }),
    ...(code !== null && { 'process.exit.code': code }),
  },
  failed: !ok,
})

/** Null without a trace, and on the daemon's link to itself, where this process follows both ends. */
export const traceFrame = ({ number }: RunPeer, request_id: RequestId, trace: TraceContext | null): ExecFrame | null =>
  trace === null || number === OWN_LINK
    ? null
    : { type: 'trace', request_id, trace_id: fromHex(trace.traceId), span_id: fromHex(trace.spanId) }

export const contextOf = ({ trace_id, span_id }: Extract<ExecFrame, { type: 'trace' }>): TraceContext => ({
  traceId: toHex(trace_id),
  spanId: toHex(span_id),
})
