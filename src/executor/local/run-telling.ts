import { newRequestId } from '../../identity/request-id.ts'
import { HERE } from '../../protocol/lifecycle.ts'
import { RunStory } from '../../protocol/run-story.ts'
import type { RanOn } from '../../protocol/run-place.ts'
import { reasonOf } from './local-report.ts'
import type { LocalEngine } from './local-engine.ts'
import type { LocalSession } from './local-session.ts'

/** What is told of one call to whoever opened its session, from before it is known whether anything will run. */
export class RunTelling {
  /** Of the run, if there comes to be one. */
  readonly requestId = newRequestId()
  readonly #watch: LocalEngine['watch']
  readonly #session: Pick<LocalSession, 'tell' | 'key'>
  #node: string
  #story: RunStory | null = null

  constructor(components: {
    readonly engine: Pick<LocalEngine, 'watch'>
    readonly session: Pick<LocalSession, 'tell' | 'key' | 'rights'>
  }) {
    this.#watch = components.engine.watch
    this.#session = components.session
    this.#node = components.session.rights.target ?? HERE
  }

  /** Where it is to run, as it was decided. */
  at({ host, agent_id, name }: RanOn): void {
    this.#node = host === 'node' ? (agent_id ?? name ?? this.#node) : host
  }

  /** Null: nobody hears it. Where it runs is settled from then on. */
  get story(): RunStory | null {
    const { tell, key } = this.#session
    if (tell === null) return null
    const { client_name: owner, session_id, door } = key
    if (this.#story === null) {
      this.#story = new RunStory({ tell }, { owner, session: session_id, door, run_id: this.requestId, node: this.#node })
      this.#watch?.add(this.#story)
    }
    return this.#story
  }

  refused(error: unknown): void {
    this.story?.denied(reasonOf(error))
  }
}
