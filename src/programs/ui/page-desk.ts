import type { DeskListener, PageDesk } from '../../doors/page/page-desk.ts'
import { openDesk, type DeskNews } from '../../local-api/desk-human.ts'
import type { DataPaths } from '../../local-api/paths.ts'

/** Who decides, in the desk's journal and to other humans. */
const NAME = 'x0x ui'

/** How often it is looked whether the desk still answers. */
const LOOK_MS = 5_000

const tell = (listener: DeskListener, news: DeskNews): void => {
  switch (news.type) {
    case 'question': {
      const { type: _type, ...question } = news
      return listener.question(question)
    }
    case 'settled':
      return listener.settled({ question_id: news.question_id, decision: news.decision, by: news.by })
    case 'flood':
      return listener.flood({ asker: news.asker, count: news.count, last_at_ms: news.last_at_ms })
    case 'event':
      return listener.event(news.event)
    default:
      return news satisfies never
  }
}

/** The desk of a data directory, as a human's window sees it. */
export const pageDesk = (paths: DataPaths): PageDesk => ({
  watch: async (listener) => {
    const desk = await openDesk(paths, NAME)
    try {
      const { questions, floods } = await desk.subscribe((news) => tell(listener, news))
      for (const question of questions) listener.question(question)
      for (const flood of floods) listener.flood(flood)
    } catch (error) {
      desk.close()
      throw error
    }
    // One that is paused says nothing, and its questions do not come.
    const look = setInterval(() => void desk.modes({ session: null, agent: null }).catch(() => undefined), LOOK_MS)
    void desk.closed.then(() => clearInterval(look))
    return {
      ended: desk.closed.then(({ message }) => message),
      decide: async ({ question_id, permit_sha256, decision, expires_in_ms, uses }) =>
        desk.decide({
          question_id,
          permit_sha256,
          decision,
          ...(expires_in_ms === null ? {} : { expires_in_ms }),
          ...(uses === null ? {} : { uses }),
        }),
      follow: async (runs) => desk.follow(runs),
      close: () => desk.close(),
    }
  },
})
