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

/** Rules that are sent to a requester. */
export interface RulesAnswer {
  readonly subject: RunSubject
  readonly rules: Promise<TellableRules>
}

/** Not answered; the counter says why. */
export interface Dropped {
  readonly dropped: 'malformed_frames' | 'requests_ignored'
}

/** A request that is being answered, denied or run. */
export interface Active {
  readonly link: PeerLink
  readonly run: Pick<PeerRun, 'end' | 'kill'> | null
  /** Null if no command of the ACL runs. */
  readonly command: ActiveCommand | null
}

export interface ActiveCommand {
  readonly argv: readonly string[]
  readonly run: Pick<PeerRun, 'requestId' | 'state' | 'end'>
  /** Wall-clock time of the request. */
  readonly since: number
  /** The run outlives its requester. */
  readonly detached: boolean
}
