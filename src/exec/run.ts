import { AppError, isAppError } from '../base/errors.ts'
import type { Startable } from '../base/startable.ts'
import { newRequestId } from '../dm/request-id.ts'
import { checkArgvSize } from '../protocol/exec.ts'
import { isRequestId, type RequestId } from '../protocol/ids.ts'
import { SHUTDOWN_MS } from '../protocol/limits.ts'
import { ExecClient, type ExecClientComponents } from './client.ts'
import type { RunOutcome, RunSession, RunSink, RunSpec } from './run-spec.ts'
import { Sessions } from './sessions.ts'

/** Everything that a door asks to run goes through here, whoever is asked. */
export class ExecRunner implements Startable {
  readonly #client: ExecClient
  readonly #sessions: Sessions
  readonly #components: ExecClientComponents

  constructor(components: ExecClientComponents) {
    this.#components = components
    this.#client = new ExecClient(components)
    this.#sessions = new Sessions({ clock: components.clock })
  }

  /**
   * Runs the spec's argv on its agent and shows the sink what happens. Denials and exits are outcomes.
   * `signal` is the caller leaving: the run is cancelled at once and the sink is called no more.
   * Errors: `bad_request` (argv too large, not well-formed), `conflict` (request id used before,
   * cancelled before it was sent), `rate_limited`, `shutting_down`, and what dialling throws (`unknown_agent`,
   * `peer_unreachable`, `peer_rejected`, `timeout`).
   */
  async run(spec: RunSpec, sink: RunSink, signal: AbortSignal = new AbortController().signal): Promise<RunOutcome> {
    checkSpec(spec)
    const requestId = spec.request_id ?? newRequestId()
    const session = this.#sessions.open(requestId, spec)
    try {
      return await this.#client.run(spec, requestId, sink, session, { cancelled: session.cancelled, stop: signal })
    } finally {
      session.close()
    }
  }

  /** Throws what `run` would throw for want of room, before anything is read for it. */
  checkRoom(): void {
    this.#sessions.checkRoom()
  }

  /** Ends a run of ours; its caller still gets the outcome. Throws `unknown_run`. */
  cancel(requestId: RequestId): void {
    this.#sessions.cancel(requestId)
  }

  /** Runs that have not ended, oldest first. */
  sessions(): RunSession[] {
    return this.#sessions.list()
  }

  /** Counters of the asking side, and of the runs that peers opened here. */
  diagnostics(): Record<string, number> {
    return this.#components.counters.snapshot()
  }

  /** Cancels everything, and takes nothing new. Resolves when the last run is over, or after `SHUTDOWN_MS` without it. */
  async stop(): Promise<void> {
    const late = Promise.withResolvers<void>()
    const timer = this.#components.clock.setTimeout(late.resolve, SHUTDOWN_MS)
    await Promise.race([this.#sessions.stop(), late.promise])
    timer.cancel()
  }
}

const checkSpec = (spec: RunSpec): void => {
  if (spec.request_id !== undefined && !isRequestId(spec.request_id)) throw new AppError('bad_request', 'request_id: not a UUID')
  if (!spec.argv.every((token) => token.isWellFormed())) throw new AppError('bad_request', 'argv: not valid Unicode')
  try {
    checkArgvSize(spec.argv)
  } catch (error) {
    if (isAppError(error, 'malformed')) throw new AppError('bad_request', error.message, { cause: error })
    throw error
  }
}
