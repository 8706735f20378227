import { openDesk, type ApprovalClient, type ApprovalServiceEvent } from '../../src/clients/desk.ts'
import { pathsIn } from '../../src/clients/paths.ts'
import type { PendingApprovalRequest } from '../../src/protocol/desk/messages.ts'
import type { Decision } from '../../src/protocol/desk/approval-request.ts'
import { until, type TestDaemon } from './mesh-of-daemons.ts'

/** An approver who watches the approval service of a daemon. The test makes the decisions. */
export class WatchingHuman {
  readonly desk: ApprovalClient
  readonly news: ApprovalServiceEvent[] = []
  readonly #seen = new Set<string>()

  constructor(desk: ApprovalClient) {
    this.desk = desk
  }

  static async at(daemon: Pick<TestDaemon, 'dir'>, name = 'test'): Promise<WatchingHuman> {
    const desk = await openDesk(pathsIn(daemon.dir), name)
    const human = new WatchingHuman(desk)
    await desk.subscribe((news) => human.news.push(news))
    return human
  }

  /** Returns the next approval request that `next` has not returned before. */
  async next(): Promise<PendingApprovalRequest> {
    const question = await until('a question came', async () => {
      const { questions } = await this.desk.pending()
      return questions.find(({ question_id }) => !this.#seen.has(question_id)) ?? null
    })
    this.#seen.add(question.question_id)
    return question
  }

  async decide({ question_id, question }: PendingApprovalRequest, decision: Decision): Promise<void> {
    await this.desk.decide({ question_id, permit_sha256: question.permit_sha256, decision })
  }

  /** Resolves when no approval request waits. */
  async nothingWaits(): Promise<void> {
    await until('nothing waits', async () => (await this.desk.pending()).questions.length === 0)
  }

  close(): void {
    this.desk.close()
  }
}
