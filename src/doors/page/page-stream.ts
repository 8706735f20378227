import type { ServerResponse } from 'node:http'
import type { Clock, Timer } from '../../base/clock.ts'
import { jsonText } from '../../protocol/lines.ts'
import { MAX_PAGE_BEHIND, MAX_PAGE_EVENTS_BEHIND, PAGE_BEAT_MS } from '../../protocol/page-limits.ts'
import type { PageNews } from '../../protocol/page.ts'
import type { DeskFeed } from './desk-feed.ts'

/** Streams what the desk tells to one page, until it goes or its session is over. */
export const streamNews = (
  response: ServerResponse,
  { feed, clock, signal }: { feed: DeskFeed; clock: Clock; signal: AbortSignal },
): void => {
  let beat: Timer | null = null
  let unfollow = (): void => undefined
  const write = (news: PageNews): void => {
    if (response.destroyed) return
    // Output is told again, and the journal has how runs ended: a page that reads slowly loses no question for them.
    const unread = response.writableLength
    if (news.type === 'event' && (news.event.type === 'exec.output' ? response.writableNeedDrain : unread > MAX_PAGE_EVENTS_BEHIND)) return
    response.write(`${jsonText(news)}\n`)
    // Who does not read holds no memory of ours: it comes again, and is told what is then.
    if (response.writableLength > MAX_PAGE_BEHIND) response.destroy()
  }
  const beatOn = (): void => {
    beat = clock.setTimeout(
      () => {
        write({ type: 'beat' })
        beatOn()
      },
      PAGE_BEAT_MS,
      { unref: true },
    )
  }
  const end = (): void => void response.end()
  response.on('error', () => undefined)
  response.once('close', () => {
    beat?.cancel()
    signal.removeEventListener('abort', end)
    unfollow()
  })
  response.writeHead(200, { 'content-type': 'application/x-ndjson' })
  response.flushHeaders()
  signal.addEventListener('abort', end, { once: true })
  beatOn()
  unfollow = feed.follow(write)
}
