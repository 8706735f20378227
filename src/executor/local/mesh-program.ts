import type { Clock } from '../../base/clock.ts'
import { AppError, errnoOf, errorCodeOf, errorText } from '../../base/errors.ts'
import { CoalescingQueue } from '../../base/wait-queue.ts'
import type { TerminalSize } from '../../executor-api/local.ts'
import type { TargetGrant } from '../../policy/local/authorize-target.ts'
import type { ProcessEnd, ProcessHandlers } from '../../process/running-process.ts'
import type { ProcessSignal } from '../../process/signals.ts'
import type { TerminalPart } from '../../protocol/api/run-events.ts'
import { denialText } from '../../protocol/denial-text.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { SESSION_NOTICES, type SessionNotice, leftBehindIn } from '../../protocol/reasons.ts'
import { MAX_APPROVAL_WAIT_MS } from '../../protocol/limits/approvals.ts'
import { TARGET_SILENCE_MS } from '../../protocol/limits/daemon.ts'
import { MAX_FRAME_DATA } from '../../protocol/limits/wire.ts'
import { NO_BYTES } from '../../protocol/wire/schema.ts'
import type { InputSink, Program } from '../runs/execution.ts'
import { MeshRunTimeout } from './mesh-run-timeout.ts'
import type { TargetRunner, TargetTerminal } from './target-runner.ts'

export interface TargetProgramInit {
  readonly requestId: RequestId
  readonly grant: TargetGrant
  readonly stdin: Uint8Array | null
  /** Called once if an approver of the target must answer within this time. */
  readonly onWaiting?: (expiresInMs: number) => void
  /** Aborted with an `AppError` when the client no longer waits for the approvers. */
  readonly gone?: AbortSignal | undefined
}

type Exit = Extract<TerminalPart, { type: 'exit' }>

/** The mesh can only end a run, so only these signals are accepted. */
const ENDS: readonly ProcessSignal[] = ['SIGTERM', 'SIGINT', 'SIGKILL', 'SIGHUP']

/** A command that runs on another agent as a run of the mesh. */
export class MeshProgram implements Program {
  readonly dead = null
  /** The run continues without its session. */
  readonly isDetached: boolean
  /** Set by `start`. */
  ended!: Promise<ProcessEnd>
  /** The command did not run. `start` threw the reason. */
  refused = false
  /** Why the end is unknown, or null if it is known or the run goes on. */
  lost: string | null = null
  /** Other readers of the output, as the target reported before the start. */
  notices: readonly SessionNotice[] = []
  readonly #targets: TargetRunner
  readonly #init: TargetProgramInit
  readonly #givenUp = new AbortController()
  /** Resolves when output may be delivered. Null means that it may now. */
  #paused: PromiseWithResolvers<void> | null = Promise.withResolvers()
  readonly #patience: MeshRunTimeout
  #isEnding = false
  /** Why the client left before the start, or null while it waits. */
  #withdrawn: AppError | null = null
  #left: number
  /** Received bytes, including dropped ones. */
  readonly #came = { stdout: 0, stderr: 0 }
  #dropped = false
  /** Sends one `cancel` at a time, however often the client asks. */
  readonly #cancels: CoalescingQueue<'cancel'>
  /** Null for a command without a terminal, and before the request. */
  #terminal: TargetTerminal | null = null

  constructor(deps: { readonly targets: TargetRunner; readonly clock: Clock }, init: TargetProgramInit) {
    this.#targets = deps.targets
    this.#patience = new MeshRunTimeout(deps, { onLate: () => this.#abandon('the daemon did not report the result in time') })
    this.#init = init
    this.#left = init.grant.max_output_bytes
    this.isDetached = init.grant.detach ?? false
    const asked = { request_id: init.requestId, detach: this.isDetached }
    this.#cancels = new CoalescingQueue({ deliver: async () => this.#targets.cancel(asked) })
  }

  /** Asks the target. Throws `command_denied`, or why the target was not reached. A reached target that is silent may run the command. */
  async start(handlers: ProcessHandlers): Promise<{ readonly kind: 'started'; readonly process: MeshProgram }> {
    const { grant } = this.#init
    const { target, timeout_ms } = grant
    // A detached run does not report in time whether an approver of the target is asked.
    this.#patience.start(timeout_ms + TARGET_SILENCE_MS + (this.isDetached ? MAX_APPROVAL_WAIT_MS : 0))
    const parts = this.#request()[Symbol.asyncIterator]()
    try {
      const { first, warnings } = await this.#first(parts)
      if (first === null) return this.#unheard('the daemon did not report the result')
      if (first.type === 'error') throw new AppError(errorCodeOf(first.error), first.message, { data: { ...first.data } })
      if (first.type === 'exit' && first.denial_reason !== null) throw this.#withdrawn ?? denied(grant, first)
      if (first.type === 'exit' && first.never_arrived === true) throw this.#withdrawn ?? notReached(target, first)
      this.notices = warnings.flatMap(noticeIn)
      // The daemon may not have known the run when `terminate` was called.
      if (this.#isEnding) this.#cancels.ask('cancel')
      this.ended = this.#follow([...warnings, first], parts, handlers)
      return { kind: 'started', process: this }
    } catch (error) {
      leave(parts)
      if (this.#givenUp.signal.aborted) return this.#unheard(errorText(this.#givenUp.signal.reason))
      if (mayRun(error)) return this.#unheard(errnoOf(error) === undefined ? errorText(error) : WENT_AWAY)
      this.refused = true
      this.#patience.end()
      throw error
    }
  }

  /** Sends typed input to the target. A command without a terminal got its whole stdin with the request. */
  get stdin(): InputSink | null {
    const terminal = this.#terminal
    return terminal && { write: async (data) => terminal.type(data), end: () => terminal.endOfFile() }
  }

  #request(): AsyncIterable<TerminalPart> {
    const { requestId, grant, stdin } = this.#init
    const { target, argv, timeout_ms, terminal } = grant
    const asked = { target, argv, timeout_ms, request_id: requestId }
    const { signal } = this.#givenUp
    if (terminal === undefined) return this.#targets.run({ ...asked, stdin, detach: this.isDetached }, signal)
    this.#terminal = this.#targets.openTerminal({ ...asked, terminal }, signal)
    return this.#terminal.parts
  }

  #unheard(lost: string): { readonly kind: 'started'; readonly process: MeshProgram } {
    this.#patience.end()
    this.ended = Promise.resolve(this.#endUnknown(lost))
    return { kind: 'started', process: this }
  }

  pause(): void {
    this.#paused ??= Promise.withResolvers()
  }

  resume(): void {
    this.#paused?.resolve()
    this.#paused = null
  }

  /** Asks the target to end the run. The target sends SIGKILL itself if needed. */
  terminate(): void {
    this.#cancels.ask('cancel')
    if (!this.#isEnding) this.#patience.again()
    this.#isEnding = true
  }

  hangUp(): void {
    this.terminate()
  }

  /** Abandons the run without waiting for its `exit`. */
  kill(): void {
    this.#abandon(this.isDetached ? GOES_ON : 'its session was closed before the daemon reported the result')
  }

  signal(signal: ProcessSignal): void {
    if (!ENDS.includes(signal))
      throw new AppError('unsupported_capability', `a run of a target can be ended (TERM, INT, HUP, KILL), and not be sent ${signal}`)
    this.terminate()
  }

  resize(size: TerminalSize): void {
    this.#terminal?.resize(size)
  }

  #abandon(why: string): void {
    this.#patience.end()
    this.#givenUp.abort(new AppError('daemon_unreachable', why))
    this.resume()
  }

  async #next(parts: AsyncIterator<TerminalPart>): Promise<TerminalPart | null> {
    const { done, value } = await parts.next()
    this.#patience.heard()
    return done === true ? null : value
  }

  /** Returns the first part that says whether the command runs, which may take an approval. */
  async #first(
    parts: AsyncIterator<TerminalPart>,
  ): Promise<{ readonly first: TerminalPart | null; readonly warnings: readonly TerminalPart[] }> {
    const warnings: TerminalPart[] = []
    const leave = new AbortController()
    let isAsked = false
    try {
      for (;;) {
        const part = await this.#next(parts)
        if (part?.type === 'disconnected' || part?.type === 'resumed') continue
        if (part?.type === 'warning') warnings.push(part)
        else if (part?.type !== 'waiting_for_approval') return { first: part, warnings }
        else {
          if (!isAsked) this.#asked(part.expires_in_ms, leave.signal)
          isAsked = true
          this.#patience.start(part.expires_in_ms + this.#init.grant.timeout_ms + TARGET_SILENCE_MS)
        }
      }
    } finally {
      leave.abort()
    }
  }

  /** Cancels the request if the client leaves before it is known whether the command runs. */
  #asked(expiresInMs: number, known: AbortSignal): void {
    const { gone, onWaiting } = this.#init
    const withdraw = (): void => {
      this.#withdrawn = gone?.reason as AppError
      this.terminate()
    }
    gone?.addEventListener('abort', withdraw, { signal: known })
    onWaiting?.(expiresInMs)
    if (gone?.aborted === true) withdraw()
  }

  /** Resolves when output may be delivered. */
  async #room(): Promise<void> {
    this.#patience.hold()
    await this.#paused?.promise
    this.#patience.release()
  }

  async #follow(first: readonly TerminalPart[], rest: AsyncIterator<TerminalPart>, handlers: ProcessHandlers): Promise<ProcessEnd> {
    let lost = WENT_AWAY
    try {
      const early = [...first]
      for (let part = early.shift() ?? null; part !== null; part = early.shift() ?? (await this.#next(rest))) {
        await this.#room()
        if (part.type === 'exit') {
          if (part.incomplete) this.lost = part.message ?? 'the connection to the target was lost, or bytes are missing'
          return this.#endOf(part)
        }
        if (part.type === 'error') lost = part.message
        else if (part.type === 'warning') handlers.onWarning(part.kind, amountOf(part))
        else if (part.type === 'stdout' || part.type === 'stderr') await this.#output(part, handlers)
      }
    } catch (error) {
      if (this.#givenUp.signal.aborted) lost = errorText(this.#givenUp.signal.reason)
      // A system error of the connection means that the daemon went away.
      else if (errnoOf(error) === undefined) lost = errorText(error)
    } finally {
      this.#patience.end()
      leave(rest)
    }
    return this.#endUnknown(lost)
  }

  #endUnknown(lost: string): ProcessEnd {
    this.lost = lost
    const { stdout, stderr } = this.#came
    return this.#endOf({
      code: null,
      signal: null,
      duration_ms: 0,
      stdout_bytes_total: stdout,
      stderr_bytes_total: stderr,
      truncated: true,
    })
  }

  async #output({ type, data }: Extract<TerminalPart, { data: Uint8Array }>, handlers: ProcessHandlers): Promise<void> {
    this.#came[type] += data.length
    const taken = data.subarray(0, this.#left)
    this.#left -= taken.length
    for (let at = 0; at < taken.length; at += MAX_FRAME_DATA) {
      handlers.onOutput(type, taken.slice(at, at + MAX_FRAME_DATA))
      await this.#room()
    }
    if (taken.length === data.length || this.#dropped) return
    this.#dropped = true
    handlers.onWarning(`${type}_cap_hit`, null)
  }

  #endOf(exit: Pick<Exit, 'code' | 'signal' | 'duration_ms' | 'stdout_bytes_total' | 'stderr_bytes_total' | 'truncated'>): ProcessEnd {
    const { code, signal, duration_ms, stdout_bytes_total, stderr_bytes_total } = exit
    const truncated = exit.truncated || this.#dropped
    // Only the target's audit log has the hashes.
    const totals = (bytes: number): ProcessEnd['stdout'] => ({ bytes_total: bytes, bytes_forwarded: bytes, sha256: NO_BYTES, truncated })
    return { code, signal, duration_ms, stdout: totals(stdout_bytes_total), stderr: totals(stderr_bytes_total), truncated }
  }
}

const noticeIn = (part: TerminalPart): SessionNotice[] =>
  part.type === 'warning' ? SESSION_NOTICES.filter((kind) => kind === part.kind) : []

/** Stops reading the answer, which ends the request. The daemon may be slow, so this is not awaited. */
const leave = (parts: AsyncIterator<unknown>): void => void parts.return?.().catch(() => undefined)

const GOES_ON = 'its session has ended, but the detached run continues: repeat the call in a new session to follow it'
const WENT_AWAY = 'the daemon stopped before it reported the result'

/** After an interrupted connection or an internal error, the command may still run. */
const mayRun = (error: unknown): boolean =>
  !(error instanceof AppError) ||
  error.code === 'internal' ||
  error.data['may_run'] === true ||
  (error.code === 'daemon_unreachable' && error.data['asked'] === true)

const denied = ({ target, argv }: TargetGrant, { denial_reason, request_id }: Exit): AppError => {
  const { what, next } = denialText(String(denial_reason), { host: target, argv })
  return new AppError('command_denied', what, { data: { target, reason: denial_reason, request_id, next: next.join('\n') } })
}

/** The target sends the number at the beginning of the text. */
const amountOf = ({ kind, message }: Extract<TerminalPart, { type: 'warning' }>): number | null =>
  kind === 'descendants_ended' ? leftBehindIn(message) : null

/** The command certainly did not run. */
const notReached = (target: string, { message, request_id }: Exit): AppError =>
  new AppError('peer_unreachable', message ?? `${target} was not reached`, { data: { target, request_id } })
