import { AppError, isAppError } from '../../base/errors.ts'
import { holdDirectory } from '../../fs/hold-directory.ts'
import { pieceHashes } from '../../identity/piece-hashes.ts'
import { newRequestId } from '../../identity/request-id.ts'
import { authorizeFile, authorizeLocalRun, type WorkingDirectory } from '../../policy/local/authorize.ts'
import { authorizeTargetRun } from '../../policy/local/authorize-target.ts'
import type { Permit } from '../../policy/permit.ts'
import type { Slot } from '../../policy/slots.ts'
import type { RequestId } from '../../protocol/ids.ts'
import type { LocalRunSink, RunStart } from '../port/local-executor.ts'
import { starterOf } from '../runs/execution.ts'
import { evidenceOf } from '../runs/run-facts.ts'
import { errorOf, type LocalEngine } from './local-engine.ts'
import { LocalReport, type LocalReportInit } from './local-report.ts'
import { SessionRun, type LocalRunInit } from './local-run.ts'
import type { LocalSession } from './local-session.ts'
import { OpenStdin } from './open-stdin.ts'
import { TargetProgram } from './target-program.ts'

/** Codes by which policy refuses: these are journalled, and other errors are mistakes of the caller's. */
const FORBIDDEN = ['unsupported_capability', 'command_denied', 'forbidden_path', 'resource_limit'] as const

/** A run that is asked for, and where. */
interface Asked {
  readonly engine: LocalEngine
  readonly session: LocalSession
  readonly start: RunStart
  readonly sink: LocalRunSink
  /** Aborted where it is to be ended before a target has answered. */
  readonly signal: AbortSignal | null
}

/** Authorizes a run and starts it. Throws what refuses it, journalled where policy did. */
export const startRun = async (asked: Asked): Promise<SessionRun> =>
  asked.session.rights.target === null ? startHere(asked) : startThere(asked)

const startHere = async (asked: Asked): Promise<SessionRun> => {
  const { engine, session, start } = asked
  const directory = await workingDirectory(session, start.cwd).catch(async (error: unknown) => refuse(asked, error))
  try {
    const { permit, slot } = await permitFor(asked, directory)
    const run = permittedRun(asked, { permit, slot, directory })
    // A session that was closed meanwhile has nothing started any more.
    if (session.closed) run.end('cancelled')
    const runs = start.detach ? engine.detached.runs : session.runs
    runs.add(run, run.execute().finally(directory.release))
    return run
  } catch (error) {
    directory.release()
    return refuse(asked, error)
  }
}

const permittedRun = (
  asked: Asked,
  { permit, slot, directory }: { permit: Permit; slot: Slot; directory: Awaited<ReturnType<typeof workingDirectory>> },
): SessionRun => {
  const { engine, start } = asked
  const { argv, stdin: first, input, env } = start
  const stdin = input || first.length > 0 ? new OpenStdin({ first, eof: !input }) : null
  const { timeout_ms, max_output_bytes } = permit.caps
  const request = {
    argv,
    stdin_bytes: first.length,
    cwd: permit.cwd,
    // Values may be secrets.
    env: Object.keys(env),
    target: null,
    request_sha256: null,
    ...toolOf(start),
    ...evidenceOf(permit, first.length === 0 ? [] : pieceHashes(first)),
  }
  return runOf(asked, request, directory.release, {
    cwd: directory.path,
    caps: { timeout_ms, max_output_bytes: max_output_bytes ?? 0 },
    stdin,
    slot,
    start: starterOf(engine.components, permit, { stdin: stdin !== null }),
    target: null,
  })
}

/** The mesh is asked for its command, which is permitted or denied there. */
const startThere = async (asked: Asked): Promise<SessionRun> => {
  const { engine, session, start, signal } = asked
  const { targets } = engine.components
  if (session.closed) throw new AppError('unknown_session')
  if (targets === null) throw new AppError('unsupported_capability', 'there is no mesh here', { data: { capability: 'target' } })
  const verdict = authorizeTargetRun(start, session)
  if (verdict.kind === 'refused') return refuse(asked, errorOf(verdict))
  const { grant, slot } = verdict
  const requestId = newRequestId()
  const target = new TargetProgram(
    { targets, clock: engine.components.clock },
    { requestId, grant, stdin: start.stdin.length === 0 ? null : start.stdin },
  )
  const request = {
    argv: grant.argv,
    matched_acl: 'security.allow_targets',
    stdin_bytes: start.stdin.length,
    timeout_ms: grant.timeout_ms,
    cwd: '',
    env: [],
    target: grant.target,
    // Only the target's own journal has these.
    stdin_sha256: null,
    request_sha256: null,
    executable: null,
    account: null,
    ...toolOf(start),
  }
  const run = runOf(asked, request, () => undefined, {
    requestId,
    cwd: null,
    caps: { timeout_ms: grant.timeout_ms, max_output_bytes: grant.max_output_bytes },
    stdin: null,
    slot,
    start: async (handlers) => target.start(handlers),
    target,
  })
  const cancel = (): void => run.cancel()
  signal?.addEventListener('abort', cancel)
  if (signal?.aborted === true) cancel()
  session.runs.add(run, run.execute())
  await run.begun.finally(() => signal?.removeEventListener('abort', cancel))
  return run
}

const runOf = (
  { engine, session, start, sink }: Asked,
  request: LocalReportInit['request'],
  onStarted: () => void,
  init: Omit<LocalRunInit, 'requestId' | 'startedAt' | 'sink' | 'report'> & { readonly requestId?: RequestId },
): SessionRun => {
  const { components } = engine
  const { requestId = newRequestId(), target } = init
  const onCapHit = (): void => void (start.fail_on_limit && run.end('cancelled'))
  const key = { ...session.key, request_id: requestId }
  const report = new LocalReport(components, { key, request, target, onStarted, onCapHit })
  const startedAt = new Date(components.clock.now()).toISOString()
  const run = new SessionRun(components, { ...init, requestId, startedAt, sink, report })
  return run
}

const toolOf = ({ tool }: RunStart): Pick<LocalReportInit['request'], 'tool'> => (tool === undefined ? {} : { tool })

const refuse = async ({ engine, session, start }: Asked, error: unknown): Promise<never> => {
  const { argv, tool } = start
  // A tool's calls are in the journal whatever becomes of them.
  if (tool !== undefined || FORBIDDEN.some((code) => isAppError(error, code)))
    await engine.refused(session.key, { method: tool?.operation ?? 'exec.start', argv }, error)
  throw error
}

/** Held until the program is started in it, so that it is the very directory that was permitted. */
const workingDirectory = async (session: LocalSession, path: string | null): Promise<WorkingDirectory & { release(): void }> => {
  const { rights } = session
  const allowed = authorizeFile({ path: path ?? '.', access: 'read' }, { ...rights, capabilities: new Set(['fs.read']) })
  if (allowed.kind === 'refused') throw errorOf(allowed)
  const held = await holdDirectory(allowed.permit)
  let open = true
  const release = (): void => {
    if (open) held[Symbol.dispose]()
    open = false
  }
  return { path: held.real, descriptor: held.descriptor, release }
}

const permitFor = async ({ engine, session, start }: Asked, cwd: WorkingDirectory): Promise<{ permit: Permit; slot: Slot }> => {
  const { components, terminalProblem, detached } = engine
  const { rights, slots, key, closed } = session
  if (closed) throw new AppError('unknown_session')
  if (start.terminal !== null && terminalProblem !== null)
    throw new AppError('unsupported_capability', terminalProblem, { data: { capability: 'pty' } })
  const verdict = authorizeLocalRun(start, cwd, {
    policy: components.policy,
    rights,
    slots: start.detach ? detached.slots : slots,
    session_id: key.session_id,
  })
  if (verdict.kind === 'refused') throw errorOf(verdict)
  if (verdict.kind === 'ask') throw new AppError('approval_unavailable')
  return verdict
}
