import { createHash } from 'node:crypto'
import { AppError } from '../../base/errors.ts'
import type { LocalRunSink, LocalRunRequest } from '../../executor-api/local.ts'
import { newRequestId } from '../../identity/request-id.ts'
import type { Approval, RequestedStdin, ApprovalRequest } from '../../policy/approval/approval.ts'
import type { ExecInForce } from '../../policy/local/local-asking.ts'
import type { ToolsSettings } from '../../policy/modes.ts'
import type { RanOnJson } from '../../protocol/api/exec-target.ts'
import { shownStdin } from '../../protocol/desk/approval-request-size.ts'
import { HERE } from '../../protocol/events/lifecycle.ts'
import { RunReporter } from '../../protocol/events/run-reporter.ts'
import { askApprovalService } from '../ask-approval-service.ts'
import type { LocalEngine, LocalSession } from './engine.ts'
import type { EngineModes, ExecTarget } from './exec-target.ts'
import { reasonOf } from './journal.ts'

/** Reports events of one call to the client that opened the session, from before it is known whether a program runs. */
export class LocalRunReporter {
  readonly requestId = newRequestId()
  readonly #watch: LocalEngine['watch']
  readonly #session: Pick<LocalSession, 'onEvent' | 'key'>
  #node: string
  #reporter: RunReporter | null = null

  constructor(deps: { readonly engine: Pick<LocalEngine, 'watch'>; readonly session: Pick<LocalSession, 'onEvent' | 'key' | 'rights'> }) {
    this.#watch = deps.engine.watch
    this.#session = deps.session
    this.#node = deps.session.rights.target ?? HERE
  }

  /** Sets the target after the decision. */
  at({ host, agent_id, name }: RanOnJson): void {
    this.#node = host === 'node' ? (agent_id ?? name ?? this.#node) : host
  }

  /** The reporter, or null without a listener. The target is fixed from the first call on. */
  get reporter(): RunReporter | null {
    const { onEvent, key } = this.#session
    if (onEvent === null) return null
    const { client_name: owner, session_id, door } = key
    if (this.#reporter === null) {
      this.#reporter = new RunReporter({ tell: onEvent }, { owner, session: session_id, door, run_id: this.requestId, node: this.#node })
      this.#watch?.add(this.#reporter)
    }
    return this.#reporter
  }

  refused(error: unknown): void {
    this.reporter?.denied(reasonOf(error))
  }
}

interface Asking {
  readonly engine: LocalEngine
  readonly modes: EngineModes
  readonly session: LocalSession
  readonly sink: LocalRunSink
  readonly reporting: LocalRunReporter
  /** Aborted if the run must not start any more. */
  readonly signal: AbortSignal | null
}

const stdinOf = ({ stdin, input }: LocalRunRequest): RequestedStdin | null => {
  if (input) return 'open'
  return stdin.length === 0
    ? null
    : { bytes: stdin.length, sha256: createHash('sha256').update(stdin).digest('hex'), text: shownStdin(stdin) }
}

/** Modes in force for a run. */
export const inForce = (
  { exec }: ExecTarget,
  { key }: LocalSession,
  start: LocalRunRequest,
  { always_ask }: ToolsSettings,
): ExecInForce => {
  const { host, security, ask, ask_fallback } = exec
  return { host, security, ask, ask_fallback, door: key.door, label: key.client_name, stdin: stdinOf(start), always_ask }
}

/**
 * Asks the approval service and returns its approval of exactly this permit. Throws `approval_denied`, `approval_timeout`,
 * `approval_unavailable`, `approval_mismatch`, or the reason why the client left.
 */
export const askDesk = async (
  question: ApprovalRequest,
  { engine, modes, session, sink, signal, reporting }: Asking,
): Promise<Approval> => {
  const { desk, spent } = modes
  const until = AbortSignal.any([session.ending, ...(signal === null ? [] : [signal]), ...(sink.gone === undefined ? [] : [sink.gone])])
  const { clock } = engine.services
  const { opened, question_id } = await askApprovalService({ clock, desk, spent }, question, until, (waiting) => {
    reporting.reporter?.waits(Math.max(waiting.expires_at_ms - clock.now(), 0))
    sink.waiting?.({ request_id: reporting.requestId, ...waiting })
  })
  if (opened.kind === 'no_approval') throw new AppError(opened.reason, opened.detail, { data: { question_id } })
  return opened.approval
}

/** The error for a run that differs from the approved one. */
export const mismatch = (what: string): AppError =>
  new AppError('approval_mismatch', `${what} has changed since it was approved; run it again, for a new approval`)
