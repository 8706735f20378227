import { AppError } from '../base/errors.ts'
import { cutOf } from '../journal/refusals.ts'
import type { IncomingRun } from '../protocol/api-answers.ts'
import { type Work, type WorkList, shortArgv, workListOf } from '../protocol/handover.ts'
import type { AgentId, RequestId } from '../protocol/ids.ts'
import { OWN_LINK } from './links/executor-links.ts'
import type { TrustEvaluator } from './links/trust-evaluator.ts'
import type { Active, ActiveCommand, Runs } from './runs/runs.ts'

const workOf = ({ argv, run, detached }: ActiveCommand, who: string): Work => ({
  kind: detached ? 'detached' : 'run',
  id: run.requestId,
  who,
  argv: shortArgv(argv),
})

type Incoming = Active & { readonly command: ActiveCommand }

/** Runs of other agents on this machine, which an operator can list and end. */
export class IncomingRuns {
  readonly #deps: { readonly trustEvaluator: Pick<TrustEvaluator, 'nameOf'>; readonly runs: Pick<Runs, 'active'> }

  constructor(deps: { readonly trustEvaluator: Pick<TrustEvaluator, 'nameOf'>; readonly runs: Pick<Runs, 'active'> }) {
    this.#deps = deps
  }

  /** Lists the runs, oldest first. Because argv is cut, MAX_PORT_RUNS of them fit in one message of the executor API. */
  list(): readonly IncomingRun[] {
    return this.#all().map((one) => this.#shown(one))
  }

  /**
   * Ends a run at once. Requesters choose the IDs, so two agents may use the same: then throws `conflict` unless an agent is named. Throws
   * `unknown_run`.
   */
  end(requestId: RequestId, agentId: AgentId | null): IncomingRun {
    const found = this.#all().filter(
      ({ link, command }) => command.run.requestId === requestId && (agentId === null || link.agentId === agentId),
    )
    const [first, ...others] = found
    if (first === undefined)
      throw new AppError('unknown_run', 'no run of another agent with that ID is active on this machine', {
        data: { next: 'See: x0x exec sessions\nSee: x0x exec sessions --incoming   (runs of other agents)' },
      })
    if (others.some(({ link }) => link.agentId !== first.link.agentId)) {
      const agents = [...new Set(found.map(({ link }) => link.agentId))]
      const next = `name one with --agent: ${agents.join(', ')}`
      throw new AppError('conflict', 'more than one agent has a run with that ID on this machine', { data: { agents, next } })
    }
    for (const { command } of found) command.run.end('ended_by_operator')
    return this.#shown(first)
  }

  /** All runs of this machine for a drain, also detached ones of this agent. Its other runs are work of local clients. */
  get work(): WorkList {
    const all = this.#deps.runs.active.flatMap(({ link, command }) =>
      command === null || (link.number === OWN_LINK && !command.detached) ? [] : [workOf(command, this.#nameOf(link.agentId))],
    )
    return workListOf(all)
  }

  #nameOf(agentId: AgentId): string {
    return this.#deps.trustEvaluator.nameOf(agentId) ?? agentId
  }

  #all(): Incoming[] {
    return this.#deps.runs.active.filter((one): one is Incoming => one.command !== null && one.link.number !== OWN_LINK)
  }

  #shown({ link: { agentId, machineId }, command: { argv, run, since, detached } }: Incoming): IncomingRun {
    return {
      request_id: run.requestId,
      agent_id: agentId,
      machine_id: machineId,
      name: this.#deps.trustEvaluator.nameOf(agentId),
      ...cutOf(argv),
      started_at: new Date(since).toISOString(),
      state: run.state,
      detached,
    }
  }
}
