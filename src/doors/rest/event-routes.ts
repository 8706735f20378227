import type { Clock } from '../../base/clock.ts'
import { type LifecycleEvent, lifecycleText } from '../../protocol/events/lifecycle.ts'
import { MAX_EVENTS_AT_ONCE } from '../../protocol/limits/events.ts'
import type { Callers } from './agents.ts'
import type { RestComponents, RestEvents } from './components.ts'
import { type Definitions, define } from './definition.ts'
import { EventStream } from './event-stream.ts'
import { callerGone, streamFormat } from './run-response.ts'
import { events as eventsAnswer, eventsItem, eventsQuery } from './schemas.ts'

/** Where a reader is. */
interface EventCursor {
  readonly since: number
  /** He was at a place that this log does not know: what he has missed cannot be said. */
  readonly lost: boolean
}

interface Found {
  readonly events: readonly LifecycleEvent[]
  readonly gap: { readonly through: number | null } | null
}

const textOf = (event: LifecycleEvent): object => ({ ...event, text: lifecycleText(event) })

/** A number alone is one of this log; an id says of which log it is. */
const placeOf = ({ id, last }: RestEvents, text: string | undefined): EventCursor => {
  if (text === undefined) return { since: 0, lost: false }
  const [log, number] = text.includes('.') ? (text.split('.') as [string, string]) : [id, text]
  const since = Number(number)
  return log === id && since <= last ? { since, lost: false } : { since: 0, lost: true }
}

const find = (log: RestEvents, session: string | null, { since, lost }: EventCursor): Found => {
  const { events, droppedThrough } = log.readSince(session, since, MAX_EVENTS_AT_ONCE)
  return { events, gap: lost ? { through: null } : droppedThrough === null ? null : { through: droppedThrough } }
}

/** The number behind which a reader goes on who was given this. */
const endOf = ({ events, gap }: Found, { since }: EventCursor): number => events.at(-1)?.n ?? Math.max(since, gap?.through ?? 0)

/** What became of runs, to whoever has the token: they are his. `callers` ends the streams. */
export const eventRoutes = ({ events: log, clock }: RestComponents, callers: Pick<Callers, 'signal'>) =>
  ({
    'GET /exec/events': define({
      query: eventsQuery,
      response: eventsAnswer,
      streams: { 'text/event-stream': eventsItem },
      handle: async ({ query, headers }, reply) => {
        const session = query.session ?? null
        const lastEventId = headers['last-event-id']
        const place = placeOf(log, isEventId(lastEventId) ? lastEventId : query.since)
        if (streamFormat(headers.accept) !== 'sse') {
          const found = find(log, session, place)
          const next = endOf(found, place)
          const more = log.readSince(session, next, 1).events.length > 0
          return { ok: true, events: found.events.map(textOf), gap: found.gap, next: `${log.id}.${next}`, more }
        }
        const stream = new EventStream({ reply, clock }, { format: 'sse' })
        stream.start()
        await follow(log, { clock, session, place, stream, ended: AbortSignal.any([callerGone(reply), callers.signal]) })
        stream.end()
        return reply
      },
    }),
  }) satisfies Definitions

/** What is none is of another server, and as good as none. */
const isEventId = (id: string | string[] | undefined): id is string => typeof id === 'string' && /^[0-9a-f]{12}\.[0-9]{1,15}$/.test(id)

interface Following {
  readonly clock: Clock
  readonly session: string | null
  readonly place: EventCursor
  readonly stream: EventStream
  readonly ended: AbortSignal
}

/** A reader who is behind holds nothing but his own place: what is dropped meanwhile is told to him as a gap. */
const follow = async (log: RestEvents, { clock, session, place, stream, ended }: Following): Promise<void> => {
  for (let at = place; !ended.aborted;) {
    const found = find(log, session, at)
    const idOf = (n: number): string => `${log.id}.${n}`
    if (found.gap !== null) await stream.sendWithId({ type: 'gap', ...found.gap }, idOf(found.gap.through ?? 0))
    for (const event of found.events) {
      if (ended.aborted) return
      await stream.sendWithId(textOf(event), idOf(event.n))
    }
    at = { since: endOf(found, at), lost: false }
    if (found.events.length === 0 && found.gap === null) await log.wait({ clock, timeoutMs: null, signal: ended })
  }
}
