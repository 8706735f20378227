import { isAppError } from '../../../base/errors.ts'
import type { ShownRun } from '../../../protocol/asked-run.ts'
import type { RunResultJson } from '../../../protocol/run-events.ts'
import type { CliContext } from '../context.ts'
import { ID_BEGINNING, proverOf } from '../proven.ts'
import { traceHeader } from '../trace-header.ts'

/** What a daemon answers to a run that is to outlive its caller. */
export type DetachedAnswer = RunResultJson | (ShownRun & { readonly ok: true })

export const isDenied = (answer: DetachedAnswer): answer is RunResultJson => 'stdout_b64' in answer

/** With a proof wherever one can be made at once; few daemons insist. */
export const askDetached = async (context: CliContext, agent: string, request: object, signal: AbortSignal): Promise<DetachedAnswer> => {
  const body = JSON.stringify(request)
  const prover = proverOf(context)
  const able = typeof prover === 'function'
  const send = async (headers: Readonly<Record<string, string>>): Promise<DetachedAnswer> =>
    context.api.json<DetachedAnswer>({
      method: 'POST',
      path: '/exec/run',
      body,
      headers: { ...headers, ...traceHeader(context.env) },
      signal,
    })
  if (able && !ID_BEGINNING.test(agent)) return send(prover(body))
  try {
    return await send({})
  } catch (error) {
    if (!isAppError(error, 'operator_proof_required')) throw error
    if (!able) throw prover
    return send(prover(body))
  }
}

/** The Request may have left. */
export const mayRun = (error: unknown): boolean =>
  isAppError(error) && (error.data['may_run'] === true || (error.code === 'daemon_unreachable' && error.data['asked'] !== false))
