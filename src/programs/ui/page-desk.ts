import { type ApprovalServiceEvent, openDesk } from '../../clients/desk.ts'
import type { DataPaths } from '../../clients/paths.ts'
import type { PageDesk } from '../../doors/page/services.ts'
import type { Flood, PendingApprovalRequest } from '../../protocol/desk/messages.ts'
import type { PageEvent } from '../../protocol/page.ts'

/** Name of the approval client in the approval log and for other approvers. */
const NAME = 'x0x ui'

/** Interval of the check that the approval service still answers. */
const LOOK_MS = 5_000

const newsOf = (news: ApprovalServiceEvent): PageEvent => {
  const { type, ...fields } = news
  if (type === 'question') return { type, question: fields as PendingApprovalRequest }
  return type === 'flood' ? { type, flood: fields as Flood } : news
}

/** The approval service of a data directory for a page. */
export const pageDesk = (paths: DataPaths): PageDesk => ({
  watch: async (listener) => {
    const desk = await openDesk(paths, NAME)
    try {
      const { questions, floods } = await desk.subscribe((news) => listener(newsOf(news)))
      for (const question of questions) listener({ type: 'question', question })
      for (const flood of floods) listener({ type: 'flood', flood })
    } catch (error) {
      desk.close()
      throw error
    }
    // A stopped service sends nothing, so its requests would be missed.
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
