import type { Clock, Timer } from '../base/clock.ts'
import { LIVE_AGAIN_MS, LIVE_OUTPUT_MS, MAX_LIVE_AT_ONCE } from '../protocol/lifecycle-limits.ts'
import { lifecycleEvent, type LifecycleEvent, type LifecycleFacts } from '../protocol/lifecycle.ts'
import { RunStory } from '../protocol/run-story.ts'

/** Tells those who watch over this host what becomes of runs and, now and then, what those that go on have written. It holds no run up. */
export class RunWatch {
  readonly #clock: Clock
  readonly #tell: (event: LifecycleEvent) => void
  /** Runs that go on, and when each was last told; the longest ago first. */
  readonly #stories = new Map<RunStory, number>()
  /** Of the last event. */
  #n = 0
  #timer: Timer | null = null

  /** `tell` must not throw. */
  constructor(components: { readonly clock: Clock; readonly tell: (event: LifecycleEvent) => void }) {
    this.#clock = components.clock
    this.#tell = components.tell
  }

  tell(facts: LifecycleFacts): void {
    this.#tell(lifecycleEvent(facts, { n: ++this.#n, ts: new Date(this.#clock.now()).toISOString() }))
  }

  /** A run of which nobody else hears. */
  story(about: ConstructorParameters<typeof RunStory>[1]): RunStory {
    const story = new RunStory({ tell: (facts) => this.tell(facts) }, about)
    this.follow(story)
    return story
  }

  /** Tells of its output until it is over. */
  follow(story: RunStory): void {
    this.#stories.set(story, this.#clock.monotonic())
    if (this.#timer === null) this.#wait()
  }

  #wait(): void {
    this.#timer = this.#clock.setTimeout(() => this.#look(), LIVE_OUTPUT_MS, { unref: true })
  }

  #look(): void {
    const now = this.#clock.monotonic()
    let room = MAX_LIVE_AT_ONCE
    const stories = [...this.#stories]
    for (const [story, told] of stories) {
      if (story.over) this.#stories.delete(story)
      const facts = room > 0 ? story.soFar(now - told >= LIVE_AGAIN_MS) : null
      if (facts === null) continue
      room -= 1
      this.#stories.delete(story)
      this.#stories.set(story, now)
      this.tell(facts)
    }
    this.#timer = null
    if (this.#stories.size > 0) this.#wait()
  }
}
