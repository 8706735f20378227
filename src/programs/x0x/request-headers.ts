import { type AppError, isAppError } from '../../base/errors.ts'
import type { Environment } from '../../base/runtime.ts'
import { type RunProver, runProver } from '../../clients/operator.ts'
import type { CliContext } from './context.ts'

/** The beginning of an id may mean a stranger, whom a proof has to name by the whole id. */
export const ID_BEGINNING = /^[0-9a-f]{1,63}$/

/** What proves our requests, or why nothing does. */
export const proverOf = (context: CliContext): RunProver | AppError => {
  try {
    return runProver(context)
  } catch (error) {
    if (isAppError(error)) return error
    throw error
  }
}

/** The trace that this command is part of, where its caller says one in the environment. Whether it is one, the daemon says. */
export const traceHeader = ({ TRACEPARENT: traceparent = '' }: Environment): { readonly traceparent?: string } =>
  /^[0-9a-f-]{55,128}$/.test(traceparent) ? { traceparent } : {}
