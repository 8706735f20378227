import { BoundedMap } from '../../base/bounded-collections.ts'
import type { ExecutorClient } from '../../executor-api/client.ts'
import { type DetachedRequest, hasEnd, isOver } from '../../protocol/api/detached-run.ts'
import type { LifecycleLog } from '../../protocol/events/event-log.ts'
import { RunReporter } from '../../protocol/events/run-reporter.ts'
import { MAX_ASKED_RUNS } from '../../protocol/limits/detached.ts'
import type { RunOutcome } from '../run-spec.ts'

export interface DetachedStoriesComponents {
  readonly executor: Pick<ExecutorClient, 'identity'>
  readonly lifecycle: Pick<LifecycleLog, 'add'>
}

type About = Pick<DetachedRequest, 'request_id' | 'agent_id' | 'session'>

/** What became of detached runs, told as events to whoever asked for them, as far as somebody here hears of it: nobody waits for their ends. */
export class DetachedRunEvents {
  readonly #components: DetachedStoriesComponents
  /** Those that were told of, so that each event comes once. */
  readonly #stories = new BoundedMap<string, RunReporter>({ max: MAX_ASKED_RUNS })

  constructor(components: DetachedStoriesComponents) {
    this.#components = components
  }

  /** It certainly does not run: `reason` of its host's denial, or the code of an error. Its id may be asked for again. */
  denied(about: About, reason: string): void {
    this.#storyOf(about).denied(reason)
    this.#stories.delete(about.request_id)
  }

  /** How it is, as its host has just said. */
  heard(run: DetachedRequest, outcome: Pick<RunOutcome, 'duration_ms' | 'incomplete'> | null): void {
    const story = this.#storyOf(run)
    const { state, code, signal, denial_reason } = run
    if (denial_reason !== null) story.denied(denial_reason)
    else if (hasEnd(run))
      story.finished({ code, signal, duration_ms: outcome?.duration_ms ?? null, incomplete: outcome?.incomplete ?? false })
    else if (isOver(state) && state !== 'ended') story.lost()
    else if (state === 'running' && story.running === null && !story.over) story.started()
  }

  #storyOf({ request_id: run_id, agent_id: node, session }: About): RunReporter {
    const known = this.#stories.get(run_id)
    if (known !== undefined) return known
    const { executor, lifecycle } = this.#components
    const about = { owner: executor.identity.agentId, session, door: 'rest', run_id, node } as const
    const story = new RunReporter({ tell: (facts) => lifecycle.add(facts) }, about)
    this.#stories.set(run_id, story)
    return story
  }
}
