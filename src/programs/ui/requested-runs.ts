import { AppError } from '../../base/errors.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import { operate } from '../../clients/operator.ts'
import type { PageRun } from '../../protocol/page-lists.ts'
import type { DaemonLists } from './daemon-lists.ts'

interface RequestedRunDeps {
  readonly api: LocalApi
  readonly lists: Pick<DaemonLists, 'detached'>
}

/** Time for the end of a detached run to be reported. Its program has 5 seconds after SIGTERM. */
const END_MS = 8_000

/** The list of detached runs has states as last reported, so the daemon waits for the end. */
const learnEnd = async ({ api, lists }: RequestedRunDeps, request_id: string): Promise<void> => {
  await api.json({ method: 'POST', path: '/runs/wait', body: { request_ids: [request_id], timeout_ms: END_MS } }).catch(() => undefined)
  lists.detached.forget()
}

/**
 * Asks for the end of a run that this agent requested. An operator proves it, so that the audit log has it; the end of a detached run is in
 * the request log instead. Throws `unknown_run`, `conflict` for other runs, and `operator_proof_required`.
 */
export const stopRun = async (deps: RequestedRunDeps, run: PageRun | null, signal: AbortSignal): Promise<object> => {
  if (run === null) throw new AppError('unknown_run', 'no log of this machine has that run any more')
  const { side, result, detached, request_id } = run
  if (side !== 'mine') throw new AppError('conflict', 'another agent or a program requested this run: use x0x exec cancel')
  if (result !== 'running' && result !== 'waiting') throw new AppError('conflict', 'this run has ended')
  if (!detached) return operate(deps, '/exec/cancel', { request_id })
  await deps.api.json({ method: 'POST', path: '/runs/cancel', body: { request_id }, signal })
  void learnEnd(deps, request_id)
  return {}
}
