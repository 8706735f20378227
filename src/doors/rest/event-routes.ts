import { type LifecycleEvent, lifecycleText } from '../../protocol/events/lifecycle.ts'
import { MAX_EVENTS_AT_ONCE } from '../../protocol/limits/events.ts'
import type { ClientTokens } from './agents.ts'
import type { RestServices } from './services.ts'
import { type Definitions, define } from './definition.ts'
import { EventStream } from './event-stream.ts'
import { closeSignal, streamFormat } from './run-response.ts'
import { events as eventsAnswer, eventsItem, eventsQuery } from './schemas.ts'

/** Position of a client in the event log. */
interface EventCursor {
  readonly since: number
  /** The client's position is unknown to this log, so the gap cannot be counted. */
  readonly lost: boolean
}

interface Found {
  readonly events: readonly LifecycleEvent[]
  readonly gap: { readonly through: number | null } | null
}

const textOf = (event: LifecycleEvent): object => ({ ...event, text: lifecycleText(event) })

/** A plain number refers to this log. An event ID also names its log. */
const cursorOf = ({ id, last }: RestServices['events'], text: string | undefined): EventCursor => {
  if (text === undefined) return { since: 0, lost: false }
  const [log, number] = text.includes('.') ? (text.split('.') as [string, string]) : [id, text]
  const since = Number(number)
  return log === id && since <= last ? { since, lost: false } : { since: 0, lost: true }
}

const find = (log: RestServices['events'], session: string | null, { since, lost }: EventCursor): Found => {
  const { events, droppedThrough } = log.readSince(session, since, MAX_EVENTS_AT_ONCE)
  return { events, gap: lost ? { through: null } : droppedThrough === null ? null : { through: droppedThrough } }
}

/** Number of the event after which the client continues. */
const endOf = ({ events, gap }: Found, { since }: EventCursor): number => events.at(-1)?.n ?? Math.max(since, gap?.through ?? 0)

/** Events of the runs that this daemon requested. `tokens` ends the streams of replaced tokens. */
export const eventRoutes = ({ events: log, clock }: RestServices, tokens: Pick<ClientTokens, 'signal'>) =>
  ({
    'GET /exec/events': define({
      query: eventsQuery,
      response: eventsAnswer,
      streams: { 'text/event-stream': eventsItem },
      handle: async ({ query, headers }, reply) => {
        const session = query.session ?? null
        const lastEventId = headers['last-event-id']
        const cursor = cursorOf(log, isEventId(lastEventId) ? lastEventId : query.since)
        if (streamFormat(headers.accept) !== 'sse') {
          const found = find(log, session, cursor)
          const next = endOf(found, cursor)
          const more = log.readSince(session, next, 1).events.length > 0
          return { ok: true, events: found.events.map(textOf), gap: found.gap, next: `${log.id}.${next}`, more }
        }
        const stream = new EventStream({ reply, clock }, { format: 'sse' })
        stream.start()
        await follow({ events: log, clock }, session, cursor, stream, AbortSignal.any([closeSignal(reply), tokens.signal]))
        stream.end()
        return reply
      },
    }),
  }) satisfies Definitions

/** Other IDs come from other servers and are ignored. */
const isEventId = (id: string | string[] | undefined): id is string => typeof id === 'string' && /^[0-9a-f]{12}\.[0-9]{1,15}$/.test(id)

/** Streams events. A slow client occupies no memory: events that are dropped meanwhile are reported as a gap. */
const follow = async (
  { events: log, clock }: Pick<RestServices, 'events' | 'clock'>,
  session: string | null,
  cursor: EventCursor,
  stream: EventStream,
  ended: AbortSignal,
): Promise<void> => {
  for (let at = cursor; !ended.aborted;) {
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
