import { BoundedMap } from '../../base/bounded-collections.ts'
import { type DetachedRequest, hasEnd, isOver } from '../../protocol/api/detached-run.ts'
import { RunReporter } from '../../protocol/events/run-reporter.ts'
import { MAX_ASKED_RUNS } from '../../protocol/limits/detached.ts'
import type { RunOutcome } from '../run-spec.ts'
import type { NetworkServices } from '../services.ts'

type About = Pick<DetachedRequest, 'request_id' | 'agent_id' | 'session'>

/** Reports the events of detached runs, as far as this daemon learns of them. It does not wait for their ends. */
export class DetachedRunEvents {
  readonly #deps: Pick<NetworkServices, 'executor' | 'lifecycle'>
  /** Reporters of the runs with events, so that each event is reported once. */
  readonly #reporters = new BoundedMap<string, RunReporter>({ max: MAX_ASKED_RUNS })

  constructor(deps: Pick<NetworkServices, 'executor' | 'lifecycle'>) {
    this.#deps = deps
  }

  /** The run certainly does not exist. `reason` is the denial or an error code. Its ID may be used again. */
  denied(about: About, reason: string): void {
    this.#reporterOf(about).denied(reason)
    this.#reporters.delete(about.request_id)
  }

  /** The host has just reported this state. */
  heard(run: DetachedRequest, outcome: Pick<RunOutcome, 'duration_ms' | 'incomplete'> | null): void {
    const reporter = this.#reporterOf(run)
    const { state, code, signal, denial_reason } = run
    if (denial_reason !== null) reporter.denied(denial_reason)
    else if (hasEnd(run))
      reporter.finished({ code, signal, duration_ms: outcome?.duration_ms ?? null, incomplete: outcome?.incomplete ?? false })
    else if (isOver(state) && state !== 'ended') reporter.lost()
    else if (state === 'running' && reporter.running === null && !reporter.over) reporter.started()
  }

  #reporterOf({ request_id: run_id, agent_id: node, session }: About): RunReporter {
    const known = this.#reporters.get(run_id)
    if (known !== undefined) return known
    const { executor, lifecycle } = this.#deps
    const about = { owner: executor.identity.agentId, session, door: 'rest', run_id, node } as const
    const reporter = new RunReporter({ tell: (facts) => lifecycle.add(facts) }, about)
    this.#reporters.set(run_id, reporter)
    return reporter
  }
}
