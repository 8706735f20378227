/** Position of a span by W3C Trace Context, in hex. Only sampled traces are stored and forwarded. */
export interface TraceContext {
  readonly traceId: string
  /** ID of the parent span. */
  readonly spanId: string
}

export const TRACE_ID_BYTES = 16
export const SPAN_ID_BYTES = 8

/** A later version may have further fields (W3C Trace Context §3.2). `ff` is invalid. */
const TRACEPARENT = /^(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/
const NOTHING = /^0+$/

/** Parses `traceparent`. `not_sampled` means that the client wants no spans. Null means an invalid context, so a new trace begins. */
export const parseTraceparent = (text: string | undefined): TraceContext | 'not_sampled' | null => {
  const [, version, traceId = '', spanId = '', flags = '', more] = TRACEPARENT.exec(text ?? '') ?? []
  if (version === undefined || NOTHING.test(traceId) || NOTHING.test(spanId) || (version === '00' && more !== undefined)) return null
  return (Number.parseInt(flags, 16) & 1) === 1 ? { traceId, spanId } : 'not_sampled'
}
