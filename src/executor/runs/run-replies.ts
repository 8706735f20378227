import type { TellableRules } from '../../policy/mesh/tellable-rules.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { PeerLink } from '../links/executor-links.ts'
import type { PeerRun } from './peer-run.ts'
import type { RunSubject } from './reports.ts'

export interface Denial {
  readonly subject: RunSubject
  readonly reason: DenialReason
  readonly detail: string
}

/** A question for rules that is answered. */
export interface RulesAnswer {
  readonly subject: RunSubject
  readonly rules: Promise<TellableRules>
}

/** Not answered at all; the counter says why. */
export interface Dropped {
  readonly dropped: 'malformed_frames' | 'requests_ignored'
}

/** A request that is being answered: denied or told its rules (no run), or running. */
export interface Active {
  readonly link: PeerLink
  readonly run: Pick<PeerRun, 'end' | 'kill'> | null
  /** Null: no command of the ACL's. */
  readonly command: ActiveCommand | null
}

export interface ActiveCommand {
  readonly argv: readonly string[]
  readonly run: Pick<PeerRun, 'requestId' | 'state' | 'end'>
  /** When it was asked for, by the wall clock. */
  readonly since: number
  /** It outlives its caller. */
  readonly detached: boolean
}
