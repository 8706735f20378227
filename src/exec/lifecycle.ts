import { errorCodeOf, isAppError } from '../base/errors.ts'
import type { AgentId, RequestId } from '../protocol/ids.ts'
import type { LifecycleFacts } from '../protocol/lifecycle.ts'
import { OutputTail } from '../protocol/output-tail.ts'
import type { RunOutcome, RunSink, RunSpec } from './run-spec.ts'

export interface FollowedRunComponents {
  /** Hears what became of the run. */
  readonly tell: (facts: LifecycleFacts) => void
}

export interface FollowedRunInit {
  readonly requestId: RequestId
  readonly spec: RunSpec
  /** Who asks: this daemon's agent. */
  readonly owner: AgentId
}

/** Sees one run that this daemon asked for from its beginning to its end, and tells of it. It holds nothing up and fails nothing. */
export class FollowedRun {
  readonly #tell: FollowedRunComponents['tell']
  readonly #of: Pick<LifecycleFacts, 'owner' | 'session' | 'door' | 'run_id' | 'node'>
  readonly #tail = new OutputTail()
  /** That it waits. */
  #isTold = false

  constructor(components: FollowedRunComponents, { requestId, spec, owner }: FollowedRunInit) {
    this.#tell = components.tell
    this.#of = { owner, session: spec.session ?? null, door: 'rest', run_id: requestId, node: spec.agent_id }
  }

  /** The sink, with us before it. */
  before(sink: RunSink): RunSink {
    return {
      event: (event) => {
        if (event.type === 'started') this.#tell({ type: 'exec.started', ...this.#of })
        else if (event.type === 'waiting_for_approval') this.#waits(event.expires_in_ms)
        else if (event.type !== 'warning') this.#tail.push(event.data)
        return sink.event(event)
      },
    }
  }

  ended({ denial_reason, code, signal, duration_ms, incomplete }: RunOutcome): void {
    if (denial_reason !== null) this.#tell({ type: 'exec.denied', ...this.#of, denial_reason, duration_ms })
    else this.#finished({ code, signal, duration_ms, incomplete })
  }

  /** `sent`: the other side may have run it. */
  failed(error: unknown, sent: boolean): void {
    if (sent) return this.#finished({ code: null, signal: null, duration_ms: null, incomplete: true })
    this.#tell({ type: 'exec.denied', ...this.#of, denial_reason: isAppError(error) ? errorCodeOf(error.code) : 'internal' })
  }

  /** Once, however many must agree. */
  #waits(expires_in_ms: number): void {
    if (!this.#isTold) this.#tell({ type: 'exec.waiting', ...this.#of, expires_in_ms })
    this.#isTold = true
  }

  #finished(end: Pick<RunOutcome, 'code' | 'signal' | 'incomplete'> & { readonly duration_ms: number | null }): void {
    const { text: tail, truncated: tail_truncated } = this.#tail.take()
    this.#tell({ type: 'exec.finished', ...this.#of, ...end, tail, tail_truncated })
  }
}
