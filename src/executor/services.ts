import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { DeskLink } from '../desk/desk-link.ts'
import type { DeskCounts } from '../desk/open-desk.ts'
import type { Journal } from '../journal/journal.ts'
import type { PolicyContext } from '../policy/mesh/authorize.ts'
import type { AclInForce } from '../policy/mesh/load-acl.ts'
import type { ProcessTreeSource } from '../process/process-trees.ts'
import type { CleanupProcess } from '../process/cleanup-process.ts'
import type { Contacts } from '../trust/contacts.ts'
import type { Revocations } from '../trust/revocations.ts'
import type { AuthorityJournal } from './authority-journal.ts'
import type { ExecCounters } from './exec-counters.ts'
import type { Signatures } from './links/signatures.ts'
import type { TrustEvaluator } from './links/trust-evaluator.ts'
import type { OperatorGate } from './operator-auth.ts'

/** What the parts of one executor share. Each part takes a `Pick` of it. */
export interface ExecutorServices {
  readonly authority: AuthorityJournal
  /** Starts process trees. It has checked that the ACL can be enforced. */
  readonly trees: ProcessTreeSource
  readonly clock: Clock
  readonly contacts: Contacts
  readonly counters: ExecCounters
  /** Asks the approvers of this machine; null: nobody can be asked, so a run that needs an approval is denied. */
  readonly desk: DeskLink | null
  /** Counts of an approval service that this process hosts; it returns null when it hosts none. */
  readonly deskCounts: () => DeskCounts | null
  readonly gate: OperatorGate
  readonly cleanup: CleanupProcess
  readonly inForce: AclInForce
  /** The audit log; null only when the ACL names none: then nothing can run. */
  readonly journal: Journal | null
  readonly judge: TrustEvaluator
  readonly log: Logger
  /** The request log: what this agent asks of others. */
  readonly outgoing: Journal
  readonly policy: PolicyContext
  readonly revocations: Revocations
  readonly signatures: Signatures
}
