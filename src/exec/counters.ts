import { Counters } from '../base/metrics.ts'

/** Counters of the requester; `docs/rest.md` has a line for each. */
export const REQUESTER_COUNTERS = {
  runs_requested: 'Requests sent, to other agents and to ourselves',
  runs_completed: 'Runs whose signed Exit was verified and whose output was whole, denials included',
  runs_denied: 'Of the runs that are completed, denied',
  runs_incomplete: 'Runs whose outcome is unknown or whose output is missing or altered',
  runs_resumed: 'Times that a run of ours went on over another connection',
  requests_sent_again: 'Requests that had certainly not arrived and were sent a second time, over another connection',
  runs_cancelled: 'Runs that were cancelled here, by request or because the caller left',
  fanouts: 'Fan-outs begun: one command for many hosts, each of which is counted as a run where its Request was sent',
  fanout_hosts: 'Hosts of the fan-outs that have ended',
  fanout_hosts_not_started: 'Of these, hosts whose turn did not come',
  runs_detached: 'Requests sent for runs that outlive their callers and were taken',
  detached_asked: 'Questions sent about runs of ours that outlive their callers, attaches included',
  rules_asked: 'Questions sent which commands this agent may run',
  foreign_frames: 'Messages on the stream of a run that did not belong to it or made no sense',
  peer_runs: 'Runs that peers opened here',
  peer_rules_asked: 'Questions of peers which commands they may run here',
  peer_detached_asked: 'Questions of peers about runs of theirs that outlive their callers',
  approvers_asked: 'Questions sent to agents whose approval a run here waits for',
  peer_approvals_asked: 'Questions of peers whether this agent approves a run there',
  spans_exported: 'Spans of traces that a collector has taken',
  spans_dropped: 'Spans of traces that nobody has taken, or runs that were not followed because there were too many',
  peer_malformed: 'Streams of peers that ended because of a malformed message',
} as const

export type RequesterCounter = keyof typeof REQUESTER_COUNTERS

export class RequesterCounters extends Counters<RequesterCounter> {
  constructor() {
    super(REQUESTER_COUNTERS)
  }
}
