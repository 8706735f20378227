import { constants } from 'node:os'

import { AppError, isAppError } from '../../base/errors.ts'
import { holdDirectory } from '../../fs/hold-directory.ts'
import { authorizeFile, authorizeLocalRun, type WorkingDirectory } from '../../policy/local/authorize.ts'
import type { TargetGrant } from '../../policy/local/authorize-target.ts'
import type { LocalRunIntent } from '../../policy/local/intent.ts'
import type { Permit } from '../../policy/permit.ts'
import type { Slot } from '../../policy/slots.ts'
import { PROCESS_SIGNALS, type ProcessSignal } from '../../process/signals.ts'
import type { RequestId } from '../../protocol/ids.ts'
import type { ToLocalExecutor } from '../port/local-messages.ts'
import { Run } from '../runs/run.ts'
import type { RunOutlet } from '../runs/outlet.ts'
import { errorOf, type LocalEngine } from './local-engine.ts'
import { LocalReport } from './local-report.ts'
import type { LocalSession } from './local-session.ts'
import type { RunSet, SessionRun } from './run-set.ts'

export type RunStart = Extract<ToLocalExecutor, { type: 'run_start' }>

/** Why one of these would be refused is the policy's word; the rest is for the caller to see to. */
const FORBIDDEN = ['unsupported_capability', 'command_denied', 'forbidden_path', 'resource_limit'] as const

/** Through the gates, and on its way once it is told to. */
export interface Permitted {
  readonly run: SessionRun
  /** Where it runs; null: on a target, which says nothing of that. */
  readonly cwd: string | null
  /** What counts, where more was asked for. */
  readonly caps: Pick<TargetGrant, 'timeout_ms' | 'max_output_bytes'>
  /** On its way; what becomes of it is said at the outlet. */
  begin(): void
}

/** Through the gates. Throws what refuses it. */
export const startRun = async (
  engine: LocalEngine,
  session: LocalSession,
  start: RunStart,
  init: { readonly requestId: RequestId; readonly outlet: RunOutlet },
): Promise<Permitted> => {
  const directory = await workingDirectory(session, start.cwd).catch(async (error: unknown) => refuse(engine, session, start, error))
  try {
    const allowed = await permitFor(engine, session, start, directory)
    const run = runOf(engine, session, { start, ...init, ...allowed, onStarted: directory.release })
    return {
      run,
      cwd: directory.path,
      caps: capsOf(allowed.permit),
      begin: () => begin(start.detach ? engine.detached.runs : session.runs, run, { closed: session.closed, release: directory.release }),
    }
  } catch (error) {
    directory.release()
    return refuse(engine, session, start, error)
  }
}

const capsOf = ({ caps }: Permit): Permitted['caps'] => ({ timeout_ms: caps.timeout_ms, max_output_bytes: caps.max_output_bytes ?? 0 })

/** A session that was closed meanwhile has nothing started any more. */
const begin = (runs: RunSet, run: Run, { closed, release }: { readonly closed: boolean; readonly release: () => void }): void => {
  if (closed) run.end('cancelled')
  runs.add(run, run.execute().finally(release))
}

/** Throws what refuses a command, which is in the journal where it was forbidden. */
export const refuse = async (engine: LocalEngine, session: LocalSession, { argv }: RunStart, error: unknown): Promise<never> => {
  if (FORBIDDEN.some((code) => isAppError(error, code))) await engine.refused(session.key, { method: 'exec.start', argv }, error)
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

/** What is asked of the policy. */
export const intentOf = ({ argv, shell, detach, input, timeout_ms, max_output_bytes, terminal, env }: RunStart): LocalRunIntent => {
  const variables = Object.fromEntries(env.map(({ name, value }) => [name, value]))
  return { argv, shell, detach, input, env: variables, terminal, timeout_ms, max_output_bytes }
}

const permitFor = async (
  { components: { policy }, terminalProblem, detached }: LocalEngine,
  { rights, slots, key, closed }: LocalSession,
  start: RunStart,
  cwd: WorkingDirectory,
): Promise<{ permit: Permit; slot: Slot }> => {
  if (closed) throw new AppError('unknown_session')
  if (start.terminal !== null && terminalProblem !== null)
    throw new AppError('unsupported_capability', terminalProblem, { data: { capability: 'pty' } })
  const verdict = authorizeLocalRun(intentOf(start), cwd, {
    policy,
    rights,
    slots: start.detach ? detached.slots : slots,
    session_id: key.session_id,
  })
  if (verdict.kind === 'refused') throw errorOf(verdict)
  return verdict
}

const runOf = (
  { components }: LocalEngine,
  session: LocalSession,
  init: { start: RunStart; requestId: RequestId; outlet: RunOutlet; permit: Permit; slot: Slot; onStarted: () => void },
): Run => {
  const { start, requestId, outlet, permit, slot, onStarted } = init
  const hasStdin = start.input || start.stdin.length > 0
  const report = new LocalReport(components, {
    key: { ...session.key, request_id: requestId },
    argv: start.argv,
    env: start.env.map(({ name }) => name),
    stdin: start.stdin,
    onStarted,
    onCapHit: () => start.fail_on_limit && run.end('cancelled'),
  })
  const run = new Run(components, {
    requestId,
    stdin: hasStdin ? 'open' : null,
    permit,
    report,
    slot,
    outlet,
    resumable: false,
    leased: false,
    onForgotten: () => undefined,
  })
  // A door that has sent some of it goes on with the next number.
  if (start.stdin.length > 0) run.acceptStdin({ seq: 0, data: start.stdin, eof: !start.input })
  return run
}

/** `TERM` or `SIGTERM`; throws `bad_request` for what may not be sent. */
export const signalOf = (text: string): ProcessSignal => {
  const name = text.startsWith('SIG') ? text : `SIG${text}`
  const signal = PROCESS_SIGNALS.find((one) => one === name)
  if (signal === undefined || constants.signals[signal] === undefined)
    throw new AppError(
      'bad_request',
      `signal: one of ${PROCESS_SIGNALS.map((one) => one.slice(3)).join(', ')}, not ${JSON.stringify(text)}`,
    )
  return signal
}
