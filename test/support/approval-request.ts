import type { ApprovalRequest } from '../../src/protocol/desk/approval-request.ts'
import { questionOf as anyQuestion } from './questions.ts'

/** An approval request as policy creates it for `git push` by a local agent. `changed` replaces fields. */
export const questionOf = (changed: Partial<ApprovalRequest> = {}): ApprovalRequest =>
  anyQuestion({
    session_id: null,
    asker: { kind: 'local', label: 'reviewer' },
    argv: ['git', 'push', 'origin'],
    cwd: '/srv/app',
    why: 'no pattern of the allowlist fits it',
    ...changed,
  })
