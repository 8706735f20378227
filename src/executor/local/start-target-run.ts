import { AppError } from '../../base/errors.ts'
import { authorizeTargetRun } from '../../policy/local/authorize-target.ts'
import type { RequestId } from '../../protocol/ids.ts'
import type { RunOutlet } from '../runs/outlet.ts'
import { errorOf, type LocalEngine } from './local-engine.ts'
import type { LocalSession } from './local-session.ts'
import { intentOf, refuse, type Permitted, type RunStart } from './start-run.ts'
import { TargetRun } from './target-run.ts'

/** The same for a session of a target: the mesh is asked for its command, which is permitted or denied there. Throws what refuses it. */
export const startTargetRun = async (
  engine: LocalEngine,
  session: LocalSession,
  start: RunStart,
  { requestId, outlet }: { readonly requestId: RequestId; readonly outlet: RunOutlet },
): Promise<Permitted> => {
  const { journal, targets, total } = engine.components
  if (session.closed) throw new AppError('unknown_session')
  if (targets === null) throw new AppError('unsupported_capability', 'there is no mesh here', { data: { capability: 'target' } })
  const verdict = authorizeTargetRun({ ...intentOf(start), cwd: start.cwd }, session)
  if (verdict.kind === 'refused') return refuse(engine, session, start, errorOf(verdict))
  const { grant, slot } = verdict
  const stdin = start.stdin.length === 0 ? null : start.stdin
  const key = { ...session.key, request_id: requestId }
  const run = new TargetRun({ journal, targets, total }, { key, grant, slot, outlet, stdin, failOnLimit: start.fail_on_limit })
  session.runs.add(run, run.ended)
  const tell = await run.ask()
  return { run, cwd: null, caps: grant, begin: () => void tell() }
}
