import type { Environment } from '../../base/environment.ts'

/** The trace that this command is part of, where its caller says one in the environment. Whether it is one, the daemon says. */
export const traceHeader = ({ TRACEPARENT: traceparent = '' }: Environment): { readonly traceparent?: string } =>
  /^[0-9a-f-]{55,128}$/.test(traceparent) ? { traceparent } : {}
