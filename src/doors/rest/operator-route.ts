import type * as z from 'zod'
import type { Operation } from '../../executor-api/messages.ts'
import type { RestExecutor } from './components.ts'
import { type Definition, define } from './definition.ts'

/** What an operator alone may do: it goes to the executor as it came, since that alone can check the proof. */
export const operatorRoute = (executor: RestExecutor, operation: Operation, body: z.ZodType, response: z.ZodType): Definition =>
  define({
    body,
    response,
    proof: 'needed',
    handle: async ({ rawBody, proof }) => ({ ok: true, ...((await executor.operate(operation, rawBody, proof)) as object) }),
  })
