import { type AppError, isAppError } from '../../base/errors.ts'
import type { Environment } from '../../base/runtime.ts'
import { type RunProver, runProver } from '../../clients/operator.ts'
import type { CliContext } from './context.ts'

/** A beginning of an ID may mean an unlisted agent, and a proof must contain the whole ID. */
export const ID_BEGINNING = /^[0-9a-f]{1,63}$/

/** Proves requests; or the reason why it cannot. */
export const proverOf = (context: CliContext): RunProver | AppError => {
  try {
    return runProver(context)
  } catch (error) {
    if (isAppError(error)) return error
    throw error
  }
}

/** The trace of this command's caller from the environment. The daemon validates it. */
export const traceHeader = ({ TRACEPARENT: traceparent = '' }: Environment): { readonly traceparent?: string } =>
  /^[0-9a-f-]{55,128}$/.test(traceparent) ? { traceparent } : {}
