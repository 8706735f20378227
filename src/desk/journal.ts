import {
  APPROVAL_OUTCOMES,
  type ApprovalEvent,
  type ApprovalOutcome,
  type DeskRefusedEvent,
  type StoreChangedEvent,
} from '../journal/desk-events.ts'
import type { Journal } from '../journal/journal.ts'
import { parseLine } from '../journal/parse-line.ts'
import { cutOf } from '../journal/refusals.ts'
import { lastLines } from '../journal/tail.ts'
import type { ApprovalRequest } from '../protocol/desk/approval-request.ts'
import { HISTORY_BYTES, MAX_SHOWN_QUESTION, RECOVERY_BYTES } from '../protocol/limits/approvals.ts'
import { requesterName } from './approval-request-queue.ts'

const DESK_EVENTS: ReadonlySet<string> = new Set(['question', 'approval', 'store_changed', 'desk_refused'])

/** The approval log: written before the service acts or answers, and read for the history. */
export class DeskJournal {
  readonly #journal: Journal
  readonly #outcomes = Object.fromEntries(APPROVAL_OUTCOMES.map((outcome) => [outcome, 0])) as Record<ApprovalOutcome, number>

  constructor(deps: { readonly journal: Journal }) {
    this.#journal = deps.journal
  }

  /** Each method that appends resolves when the line is on disk, and rejects `journal_unavailable` if it cannot be written. */
  async asked(questionId: string, question: ApprovalRequest, engine: string): Promise<void> {
    const { permit_sha256, door, session_id, argv, executable, cwd, env_names, target, always_ask, why } = question
    const long = Buffer.byteLength(JSON.stringify(argv)) > MAX_SHOWN_QUESTION
    await this.#journal.append({
      event: 'question',
      question_id: questionId,
      permit_sha256,
      door,
      session: session_id,
      asker: requesterName(question),
      engine,
      ...(long ? cutOf(argv) : { argv }),
      executable,
      cwd,
      env: env_names,
      host: target.host,
      target: target.agent_id,
      always_ask,
      why,
    })
  }

  async settled(event: Omit<ApprovalEvent, 'event' | 'count'> & { readonly count?: number }): Promise<void> {
    await this.#journal.append({ event: 'approval', count: 1, ...event })
    this.#outcomes[event.outcome] += event.count ?? 1
  }

  /** Outcomes since the start of this process. */
  get outcomes(): Readonly<Record<ApprovalOutcome, number>> {
    return { ...this.#outcomes }
  }

  async changed(event: Omit<StoreChangedEvent, 'event'>): Promise<void> {
    await this.#journal.append({ event: 'store_changed', ...event })
  }

  /** Rate-limited, because any program that can connect could send many. */
  async refused(event: Omit<DeskRefusedEvent, 'event'>): Promise<void> {
    await this.#journal.refuse({ event: 'desk_refused', ...event }).catch(() => undefined)
  }

  /** Writes this outcome for every open request in the last RECOVERY_BYTES, because a killed process wrote none. */
  async closeOpen({ outcome, by, reason }: Pick<ApprovalEvent, 'outcome' | 'by' | 'reason'>): Promise<void> {
    const open = new Map<string, string>()
    for (const bytes of await this.#last(RECOVERY_BYTES)) {
      const line = parseLine(bytes)
      if (line?.event === 'question') open.set(line.question_id, line.permit_sha256)
      else if (line?.event === 'approval' && line.question_id !== null) open.delete(line.question_id)
    }
    await Promise.all(
      [...open].map(async ([question_id, permit_sha256]) => this.settled({ question_id, permit_sha256, outcome, by, reason })),
    )
  }

  /** The newest lines, newest last; at most `limit`, from the end of the file. */
  async history(limit: number): Promise<readonly object[]> {
    const lines = await this.#last(HISTORY_BYTES)
    const known: object[] = []
    for (let at = lines.length - 1; at >= 0 && known.length < limit; at--) {
      const line = parseLine(lines[at]!)
      if (line !== null && DESK_EVENTS.has(line.event)) known.unshift(line)
    }
    return known
  }

  async #last(maxBytes: number): Promise<readonly Buffer[]> {
    return (await lastLines(this.#journal.path, { lines: Infinity, maxBytes })).lines
  }
}
