import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { DeskLink } from '../desk/desk-link.ts'
import type { DeskCounts } from '../desk/open-desk.ts'
import type { Journal } from '../journal/journal.ts'
import type { LocalPolicy } from '../policy/local/policy.ts'
import type { PolicyContext } from '../policy/mesh/authorize.ts'
import type { AclInForce } from '../policy/mesh/load-acl.ts'
import type { ProcessTreeSource } from '../process/process-trees.ts'
import type { PrivateCopies } from '../process/private-copies.ts'
import type { CleanupProcess } from '../process/cleanup-process.ts'
import type { Contacts } from '../trust/contacts.ts'
import type { Revocations } from '../trust/revocations.ts'
import type { AuthorityJournal } from './authority-journal.ts'
import type { ExecCounters } from './exec-counters.ts'
import type { Signatures } from './links/signatures.ts'
import type { TrustEvaluator } from './links/trust-evaluator.ts'
import type { EngineModes } from './local/exec-target.ts'
import type { LocalJournal } from './local/journal.ts'
import type { TargetRunner } from './local/target-runner.ts'
import type { OperatorGate } from './operator-auth.ts'

/** Services that the parts of one executor process share. Each part takes a `Pick` of them. */
export interface ExecutorServices {
  /** Logs changes of trust and refused calls, in the audit log or, if absent, in the request log. */
  readonly authority: AuthorityJournal
  /** Kills leftovers of a dead daemon. */
  readonly cleanup: CleanupProcess
  readonly clock: Clock
  readonly contacts: Contacts
  readonly counters: ExecCounters
  /** Asks the approvers of this machine. Null means that a run that needs an approval is denied. */
  readonly desk: DeskLink | null
  /** Counts of an approval service in this process, or null without one. */
  readonly deskCounts: () => DeskCounts | null
  /** Checks operator proofs. */
  readonly gate: OperatorGate
  /** The loaded ACL, which a reload can only narrow. */
  readonly inForce: AclInForce
  /** The audit log. Null only if the ACL has no audit log, so that no run can start. */
  readonly journal: Journal | null
  /** Decides by contacts and revocations whether an agent on a machine is trusted. */
  readonly trustEvaluator: TrustEvaluator
  readonly log: Logger
  /** The request log of this agent. */
  readonly outgoing: Journal
  /** Input of every decision, such as ACL in force, slots and environment. */
  readonly policy: PolicyContext
  readonly revocations: Revocations
  /** Signs with the agent key, with counts and a rate limit. */
  readonly signatures: Signatures
  /** Starts process trees. It has checked that the ACL can be enforced. */
  readonly trees: ProcessTreeSource
}

/** Services of the engine that runs commands for local clients, in `rexd`, `x0x mcp` and the console. Each part takes a `Pick` of them. */
export interface EngineServices extends Pick<ExecutorServices, 'cleanup' | 'clock' | 'log' | 'trees'> {
  /** Holds private copies of files that a requester can change. Absent if no run can need an approval, so that no permit needs a copy. */
  readonly copies?: PrivateCopies
  readonly journal: LocalJournal
  /** Decides about host and approvers of a command. Absent if the configuration has no modes, so that `policy` alone decides. */
  readonly modes?: EngineModes
  readonly policy: LocalPolicy
  /** Sends commands to other agents. Null means this engine has no mesh. */
  readonly targets: TargetRunner | null
  /** Receives the events of every run for the approval clients of this machine. Absent without such clients. It must not throw. */
  readonly watched?: Pick<DeskLink, 'event' | 'serve'>
}
