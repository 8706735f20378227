import { join } from 'node:path'
import { AppError, isAppError } from '../../base/errors.ts'
import type { LocalRunSink, LocalRunRequest } from '../../executor-api/local.ts'
import { holdDirectory } from '../../fs/beneath.ts'
import { pieceHashes } from '../../identity/piece-hashes.ts'
import type { Approval, ApprovalRequest } from '../../policy/approval/approval.ts'
import { authorizeTargetRun } from '../../policy/local/authorize-target.ts'
import { type WorkingDirectory, authorizeFile, authorizeLocalRun, rightsOnNode } from '../../policy/local/authorize.ts'
import type { Refused, SessionRights } from '../../policy/local/intent.ts'
import type { Permit, SandboxGrant } from '../../policy/permit.ts'
import { IMAGES_DIRECTORY, sandboxGrant } from '../../policy/sandbox/sandbox-grant.ts'
import type { Slot } from '../../policy/slots.ts'
import { starterOf } from '../runs/execution.ts'
import { evidenceOf } from '../runs/run-facts.ts'
import { LocalRunReporter, askDesk, inForce, mismatch } from './ask-desk.ts'
import { type LocalEngine, type LocalSession, errorOf } from './engine.ts'
import { type EngineModes, type ExecTarget, wishFor } from './exec-target.ts'
import { LocalReport, type LocalReportInit } from './journal.ts'
import { MeshProgram } from './mesh-program.ts'
import { type LocalRunInit, OpenStdin, LocalRun } from './run.ts'

/** A directory that is kept open until the program starts in it, so that it is exactly the permitted one. */
export interface PinnedDirectory extends WorkingDirectory {
  readonly dev: bigint
  readonly ino: bigint
  release(): void
}

/** Opens the working directory of a command. Throws `forbidden_path`, `file_not_found`, `file_error`. */
export const workingDirectory = async (session: LocalSession, path: string | null): Promise<PinnedDirectory> => {
  const { rights } = session
  const allowed = authorizeFile({ path: path ?? '.', access: 'read' }, { ...rights, capabilities: new Set(['fs.read']) })
  if (allowed.kind === 'refused') throw errorOf(allowed)
  const held = await holdDirectory(allowed.permit)
  let open = true
  const release = (): void => {
    if (open) held[Symbol.dispose]()
    open = false
  }
  const { real, descriptor, dev, ino } = held
  return { path: real, descriptor, dev, ino, release }
}

/** Codes of refusals by policy or approvers. These are logged; other errors are mistakes of the client. */
const FORBIDDEN = [
  'unsupported_capability',
  'command_denied',
  'forbidden_path',
  'resource_limit',
  'approval_denied',
  'approval_timeout',
  'approval_unavailable',
  'approval_mismatch',
  'sandbox_unavailable',
] as const

interface StartQuery {
  readonly engine: LocalEngine
  readonly session: LocalSession
  readonly start: LocalRunRequest
  readonly sink: LocalRunSink
  /** Aborted to end the run before a target has answered. */
  readonly signal: AbortSignal | null
  readonly reporting: LocalRunReporter
}

/** An approval, and the directory that it is for. */
interface Allowed {
  readonly approval: Approval
  readonly directory: PinnedDirectory | null
}

/** A run whose target the configuration chose. */
interface Routed {
  readonly modes: EngineModes
  readonly place: ExecTarget
  /** Null if no approver was asked yet. */
  readonly allowed: Allowed | null
}

/** Authorizes and starts a run. Throws the refusal, which is logged if policy refused. */
export const startRun = async (given: Omit<StartQuery, 'reporting'>): Promise<LocalRun> => {
  const asked = { ...given, reporting: new LocalRunReporter(given) }
  const run = await begin(asked).catch(async (error: unknown) => refuse(asked, error))
  if (!run.isThere) return run
  const { signal } = asked
  const cancel = (): void => run.cancel()
  signal?.addEventListener('abort', cancel)
  if (signal?.aborted === true) cancel()
  await run.begun.finally(() => signal?.removeEventListener('abort', cancel))
  return run
}

const begin = async (asked: StartQuery): Promise<LocalRun> => {
  const { engine, session, start } = asked
  const { modes } = engine.services
  if (modes !== undefined) return beginByModes(asked, modes, null)
  if (start.wish !== undefined) throw unconfigured()
  return session.rights.target === null ? beginHere(asked, null) : beginThere(asked, session.rights, null)
}

const unconfigured = (): AppError =>
  new AppError(
    'unsupported_capability',
    'host, node, security, ask: the configuration does not choose among hosts; it does with a table [tools.exec]',
    { data: { capability: 'tools.exec' } },
  )

/** Decides everything; with an approval, everything again. */
const beginByModes = async (asked: StartQuery, modes: EngineModes, allowed: Allowed | null): Promise<LocalRun> => {
  const { engine, session, start, signal, reporting } = asked
  const place = await modes.place(session.key, wishFor(session.rights.target, start.wish ?? null), signal)
  reporting.at(place.ranOn)
  const routed = { modes, place, allowed }
  if (place.node === null) return beginHere(asked, routed)
  const verdict = rightsOnNode(place.node, engine.services.policy, session.rights)
  if (verdict.kind === 'refused') throw errorOf(verdict)
  return beginThere(asked, verdict.rights, routed)
}

const beginHere = async (asked: StartQuery, routed: Routed | null): Promise<LocalRun> => {
  const { engine, session, start } = asked
  // Also after an approval, which may have taken long.
  engine.checkDraining()
  const directory = await workingDirectory(session, start.cwd)
  let isKept = false
  try {
    const before = routed?.allowed?.directory ?? null
    if (before !== null && (before.dev !== directory.dev || before.ino !== directory.ino)) throw mismatch(directory.path)
    const sandbox = await sandboxFor(engine, directory, routed)
    const verdict = permitFor(asked, directory, { routed, sandbox })
    // The directory stays open while the approval is pending, so that no other one can take its place.
    if (verdict.kind === 'ask') return await askAndBegin(asked, verdict.question, routed, directory)
    const run = permittedRun(asked, { ...verdict, directory }, routed)
    isKept = true
    // The session was closed meanwhile, so nothing may start.
    if (session.closed) run.end('cancelled')
    const runs = start.detach ? engine.detached.runs : session.runs
    runs.add(run, start.argv, run.execute().finally(directory.release))
    return run
  } finally {
    if (!isKept) directory.release()
  }
}

const askAndBegin = async (
  asked: StartQuery,
  question: ApprovalRequest,
  routed: Routed | null,
  directory: PinnedDirectory | null,
): Promise<LocalRun> => {
  if (routed === null) throw new AppError('approval_unavailable')
  if (routed.allowed !== null) throw mismatch('what would run')
  const approval = await askDesk(question, { ...asked, modes: routed.modes })
  return beginByModes(asked, routed.modes, { approval, directory })
}

const permittedRun = (
  asked: StartQuery,
  { permit, slot, directory }: { readonly permit: Permit; readonly slot: Slot; readonly directory: PinnedDirectory },
  routed: Routed | null,
): LocalRun => {
  const { engine, start } = asked
  const { argv, stdin: first, input, env } = start
  const stdin = input || first.length > 0 ? new OpenStdin({ first, eof: !input }) : null
  const { timeout_ms, max_output_bytes } = permit.caps
  const request = {
    argv,
    stdin_bytes: first.length,
    cwd: permit.cwd,
    // Only names, because values may be secrets.
    env: Object.keys(env),
    target: null,
    request_sha256: null,
    ...toolOf(start),
    ...routeOf(routed),
    ...evidenceOf(permit, first.length === 0 ? [] : pieceHashes(first)),
  }
  return runOf(asked, request, directory.release, {
    cwd: directory.path,
    caps: { timeout_ms, max_output_bytes: max_output_bytes ?? 0 },
    stdin,
    slot,
    start: starterOf(engine.services, permit, { stdin: stdin !== null }),
    target: null,
    ...placeOf(routed),
  })
}

/** Asks the mesh; the target permits or denies the command. */
const beginThere = async (asked: StartQuery, rights: SessionRights, routed: Routed | null): Promise<LocalRun> => {
  const { engine, session, start, sink, reporting } = asked
  const { targets, clock } = engine.services
  engine.checkDraining()
  if (session.closed) throw new AppError('unknown_session')
  if (targets === null) throw new AppError('unsupported_capability', 'this program has no mesh', { data: { capability: 'target' } })
  const exec = routed && inForce(routed.place, session, start, routed.modes.tools)
  const may_detach = engine.services.policy.granted.has('exec.detach')
  const context = { rights, slots: session.slots, session_id: session.key.session_id, may_detach, exec }
  const verdict = authorizeTargetRun(start, context, routed?.allowed?.approval ?? null)
  if (verdict.kind === 'refused') throw errorOf(verdict)
  if (verdict.kind === 'ask') return askAndBegin(asked, verdict.question, routed, null)
  const { grant, slot } = verdict
  const { requestId, reporter } = reporting
  const onWaiting = (ms: number): void => {
    reporter?.waits(ms)
    sink.waiting?.({ request_id: requestId, question_id: null, expires_at_ms: clock.now() + ms })
  }
  const stdin = start.stdin.length === 0 ? null : start.stdin
  const target = new MeshProgram(
    { targets, clock },
    { requestId: start.detached_id ?? requestId, grant, stdin, onWaiting, gone: sink.gone },
  )
  const request = {
    argv: grant.argv,
    matched_acl: 'security.allow_targets',
    stdin_bytes: start.stdin.length,
    timeout_ms: grant.timeout_ms,
    cwd: '',
    env: [],
    target: grant.target,
    ...(grant.terminal !== undefined && { terminal: true as const }),
    // Only the target's audit log has these.
    stdin_sha256: null,
    request_sha256: null,
    executable: null,
    account: null,
    ...toolOf(start),
    ...routeOf(routed),
  }
  const run = runOf(asked, request, () => undefined, {
    cwd: null,
    caps: { timeout_ms: grant.timeout_ms, max_output_bytes: grant.max_output_bytes },
    // A terminal takes its input later, as a local one does.
    stdin: grant.terminal === undefined ? null : new OpenStdin({ first: start.stdin, eof: !start.input }),
    slot,
    start: async (handlers) => target.start(handlers),
    target,
    ...placeOf(routed),
  })
  session.runs.add(run, start.argv, run.execute())
  return run
}

const runOf = (
  { engine, session, start, sink, reporting }: StartQuery,
  request: LocalReportInit['request'],
  onStarted: () => void,
  init: Omit<LocalRunInit, 'requestId' | 'startedAt' | 'sink' | 'report'>,
): LocalRun => {
  const { services } = engine
  const { target } = init
  const { requestId, reporter } = reporting
  const onCapHit = (): void => void (start.fail_on_limit && run.end('cancelled'))
  const key = { ...session.key, request_id: requestId }
  const report = new LocalReport(services, { key, request, target, reporter, onStarted, onCapHit })
  const startedAt = new Date(services.clock.now()).toISOString()
  const run = new LocalRun(services, { ...init, requestId, startedAt, sink, report })
  return run
}

const routeOf = (routed: Routed | null): Pick<LocalReportInit['request'], 'ran_on' | 'approved_by'> => {
  const approval = routed?.allowed?.approval
  return { ...(routed && { ran_on: routed.place.ranOn }), ...(approval && { approved_by: approval.by }) }
}

const placeOf = (routed: Routed | null): Pick<LocalRunInit, 'ranOn' | 'cuts'> => ({
  ranOn: routed?.place.ranOn ?? null,
  cuts: routed?.place.exec.cuts ?? [],
})

const toolOf = ({ tool }: LocalRunRequest): Pick<LocalReportInit['request'], 'tool'> => (tool === undefined ? {} : { tool })

const refuse = async (asked: StartQuery, error: unknown): Promise<never> => {
  const { engine, session, start, reporting } = asked
  const { argv, tool } = start
  // Every call of a tool is logged, whatever its outcome.
  if (tool !== undefined || FORBIDDEN.some((code) => isAppError(error, code)))
    await engine.refused(session.key, { method: tool?.operation ?? 'exec.start', argv }, error)
  reporting.refused(error)
  throw error
}

const permitFor = (
  { engine, session, start }: StartQuery,
  cwd: WorkingDirectory,
  { routed, sandbox }: { readonly routed: Routed | null; readonly sandbox: SandboxGrant | null },
): Exclude<ReturnType<typeof authorizeLocalRun>, Refused> => {
  const { services, terminalProblem, detached } = engine
  const { rights, slots, key, closed } = session
  if (closed) throw new AppError('unknown_session')
  if (start.terminal !== null && terminalProblem !== null)
    throw new AppError('unsupported_capability', terminalProblem, { data: { capability: 'pty' } })
  const context = {
    policy: services.policy,
    rights,
    slots: start.detach ? detached.slots : slots,
    session_id: key.session_id,
    exec: routed && inForce(routed.place, session, start, routed.modes.tools),
    sandbox,
  }
  const verdict = authorizeLocalRun(start, cwd, context, routed?.allowed?.approval ?? null)
  if (verdict.kind === 'refused') throw errorOf(verdict)
  return verdict
}

/**
 * Returns what the sandbox shows of this machine, or null if the command runs outside a sandbox. Throws why a sandbox is impossible here or
 * for this directory.
 */
const sandboxFor = async ({ services }: LocalEngine, cwd: WorkingDirectory, routed: Routed | null): Promise<SandboxGrant | null> => {
  if (routed?.place.exec.host !== 'sandbox') return null
  const { modes } = routed
  const { sandbox } = modes.tools
  const place = modes.sandboxPlace
  const made = sandboxGrant(sandbox, cwd.path, place)
  if (made.kind === 'refused') throw errorOf(made)
  const support = await services.trees.sandboxSupport(made.grant)
  if (support.kind === 'impossible')
    throw new AppError('sandbox_unavailable', `no sandbox is available on this machine: ${support.problem}`)
  if (sandbox.engine === 'bubblewrap') return made.grant
  return { ...made.grant, image: await modes.images.image(sandbox, join(place.home, IMAGES_DIRECTORY), support.userNamespace) }
}
