import type { ApprovalRequest } from '../../src/protocol/desk/approval-request.ts'
import { questionOf as anyQuestion } from './questions.ts'

/** A question as policy makes it of `git push` by a local agent, with what a test changes. */
export const questionOf = (changed: Partial<ApprovalRequest> = {}): ApprovalRequest =>
  anyQuestion({
    session_id: null,
    asker: { kind: 'local', label: 'reviewer' },
    argv: ['git', 'push', 'origin'],
    cwd: '/srv/app',
    why: 'no pattern of the allowlist fits it',
    ...changed,
  })
