import { type McpServer, ProtocolError, ProtocolErrorCode, type ReadResourceResult, ResourceTemplate } from '@modelcontextprotocol/server'
import type { Clock } from '../../base/clock.ts'
import { TerminalFilter } from '../../base/terminal-text.ts'
import { shown } from '../../base/visible-text.ts'
import { Condition } from '../../base/wait-queue.ts'
import type { LifecycleLog } from '../../protocol/events/event-log.ts'
import { type LifecycleEvent, lifecycleTextWithTail } from '../../protocol/events/lifecycle.ts'
import { EVENTS_TOLD_MS, MAX_EVENTS_AT_ONCE, MAX_EVENTS_TEXT } from '../../protocol/limits/events.ts'
import { framed } from '../tools/untrusted-frame.ts'

const EVENTS_URI = 'x0x://events'
const SINCE_URI = `${EVENTS_URI}/since/{n}`

export interface EventResourceComponents {
  /** Events of this client's own runs. */
  readonly log: LifecycleLog
  readonly clock: Clock
  /** Resolves when the client reads its output. Throws at the signal. */
  readonly room: (signal: AbortSignal) => Promise<void>
  /** Aborts when the client is gone. */
  readonly ended: AbortSignal
}

/** Removes terminal control sequences and escapes other hidden characters. */
const forModel = (tail: string): string => {
  const filter = new TerminalFilter()
  return shown(filter.push(tail) + filter.end())
}

const textOf = (event: LifecycleEvent): string => `${event.n}  ${event.ts}  ${lifecycleTextWithTail(event, forModel)}`

/** As many events as fit, at least one. */
const fitting = (events: Iterable<LifecycleEvent>): string[] => {
  const texts: string[] = []
  let length = 0
  for (const event of events) {
    const text = textOf(event)
    length += text.length
    if (length > MAX_EVENTS_TEXT && texts.length > 0) break
    texts.push(text)
  }
  return texts
}

const foreignOf = (events: readonly LifecycleEvent[]): string[] => events.map(({ tail }) => forModel(tail ?? ''))

const contents = (uri: string, texts: readonly string[]): ReadResourceResult => ({
  contents: [{ uri, mimeType: 'text/plain', text: texts.filter((text) => text !== '').join('\n') }],
})

const checkUri = (uri: string): void => {
  if (uri !== EVENTS_URI) throw new ProtocolError(ProtocolErrorCode.InvalidParams, `only ${EVENTS_URI} can be subscribed to`)
}

/** A server, and whether its client wants notifications. */
interface Listener {
  readonly server: McpServer
  isWanted: boolean
}

/** Events of a client's runs as a resource, with notifications of updates. */
export class EventResource {
  readonly #deps: EventResourceComponents

  constructor(deps: EventResourceComponents) {
    this.#deps = deps
  }

  /** `isModern`: the library tracks subscriptions itself; earlier protocol versions use `resources/subscribe`. */
  offer(server: McpServer, isModern: boolean): void {
    const about = { title: 'Results of your commands', mimeType: 'text/plain' }
    const description =
      'Events of the commands of this session, the newest that fit: started, finished (with the end of the output), denied.'
    server.registerResource('events', EVENTS_URI, { ...about, description }, async () => contents(EVENTS_URI, this.#newest()))
    const template = new ResourceTemplate(SINCE_URI, { list: undefined })
    const later = { ...about, description: `As ${EVENTS_URI}, but the events after number n, the oldest that fit.` }
    server.registerResource('events_since', template, later, async (uri, { n }) => contents(uri.href, this.#since(n)))
    const listener = { server, isWanted: isModern }
    if (!isModern) this.#takeSubscriptions(listener)
    void this.#emit(listener).catch(() => undefined)
  }

  #newest(): string[] {
    const { log } = this.#deps
    const { events } = log.readSince(null, 0, Number.MAX_SAFE_INTEGER)
    const texts = fitting(events.toReversed()).toReversed()
    const left = log.last - texts.length
    const note = left === 0 ? '' : `Events up to ${left} are left out; ${EVENTS_URI}/since/0 begins with the oldest stored events.`
    return [note, framed(texts.join('\n'), foreignOf(events.slice(-texts.length)))]
  }

  #since(given: unknown): string[] {
    const { log } = this.#deps
    if (typeof given !== 'string' || !/^[0-9]{1,15}$/.test(given))
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, `${EVENTS_URI}/since/N: N is the number of an event`)
    const { events, droppedThrough } = log.readSince(null, Number(given), MAX_EVENTS_AT_ONCE)
    const texts = fitting(events)
    const last = events[texts.length - 1]?.n ?? log.last
    const gone = droppedThrough === null ? '' : `Events up to ${droppedThrough} are no longer stored.`
    const more = last < log.last ? `More: ${EVENTS_URI}/since/${last}` : ''
    return [gone, framed(texts.join('\n'), foreignOf(events.slice(0, texts.length))), more]
  }

  #takeSubscriptions(listener: Listener): void {
    const { server } = listener.server
    server.setRequestHandler('resources/subscribe', async ({ params: { uri } }) => {
      checkUri(uri)
      listener.isWanted = true
      return {}
    })
    server.setRequestHandler('resources/unsubscribe', async ({ params: { uri } }) => {
      checkUri(uri)
      listener.isWanted = false
      return {}
    })
  }

  /** Notifies the client of new events, at most once per `EVENTS_TOLD_MS` and only while it reads its output. */
  async #emit(listener: Listener): Promise<void> {
    const { log, clock, room, ended: signal } = this.#deps
    const pause = new Condition()
    for (let told = log.last; !signal.aborted;) {
      if (log.last === told) await log.wait({ clock, timeoutMs: null, signal })
      await room(signal)
      told = log.last
      if (!listener.isWanted || signal.aborted) continue
      await listener.server.server.sendResourceUpdated({ uri: EVENTS_URI })
      await pause.waitAtMost({ clock, timeoutMs: EVENTS_TOLD_MS, signal })
    }
  }
}
