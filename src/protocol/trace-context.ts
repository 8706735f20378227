/** Where a span belongs, as W3C Trace Context has it; in hex. Only what is sampled is kept or passed on. */
export interface TraceContext {
  readonly traceId: string
  /** Of the span that is the parent of ours. */
  readonly spanId: string
}

export const TRACE_ID_BYTES = 16
export const SPAN_ID_BYTES = 8

/** A later version has more behind these four fields (W3C Trace Context §3.2); `ff` is none. */
const TRACEPARENT = /^(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/
const NOTHING = /^0+$/

/** Of the header or the variable `traceparent`. `not_sampled`: its caller wants no spans. Null: it says nothing, and a trace begins here. */
export const parseTraceparent = (text: string | undefined): TraceContext | 'not_sampled' | null => {
  const [, version, traceId = '', spanId = '', flags = '', more] = TRACEPARENT.exec(text ?? '') ?? []
  if (version === undefined || NOTHING.test(traceId) || NOTHING.test(spanId) || (version === '00' && more !== undefined)) return null
  return (Number.parseInt(flags, 16) & 1) === 1 ? { traceId, spanId } : 'not_sampled'
}
