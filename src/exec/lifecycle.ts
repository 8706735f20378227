import { isAppError } from '../base/errors.ts'
import type { RunStory } from '../protocol/run-story.ts'
import type { RunOutcome, RunSink } from './run-spec.ts'

/** The sink, with the story of its run before it. */
export const storyBefore = (story: RunStory, sink: RunSink): RunSink => ({
  event: (event) => {
    if (event.type === 'stdout' || event.type === 'stderr') story.output(event.data)
    else if (event.type === 'started') story.started()
    else if (event.type === 'waiting_for_approval') story.waits(event.expires_in_ms)
    return sink.event(event)
  },
  sent: () => sink.sent?.(),
})

export const storyEnded = (story: RunStory, { denial_reason, duration_ms, ...end }: RunOutcome): void => {
  if (denial_reason === null) story.finished({ ...end, duration_ms })
  else story.denied(denial_reason, duration_ms)
}

/** `sent`: the other side may have run it. */
export const storyFailed = (story: RunStory, error: unknown, sent: boolean): void => {
  if (sent) story.lost()
  else story.denied(isAppError(error) ? error.code : 'internal')
}
