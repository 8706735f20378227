import { Counters } from '../base/metrics.ts'

/** Counters of the requester with their help texts. `docs/observability.md` is generated from them. */
export const REQUESTER_COUNTERS = {
  runs_requested: 'Requests sent to other agents and to this agent',
  runs_completed: 'Runs with a verified signed result and complete output, including denials',
  runs_denied: 'Completed runs that were denied',
  runs_incomplete: 'Runs whose result is unknown, or whose output is missing or altered',
  runs_resumed: 'Times that a run continued over another connection',
  requests_sent_again: 'Requests that certainly did not arrive and were sent again',
  runs_cancelled: 'Runs cancelled by a request or because the client disconnected',
  fanouts: 'Fan-outs started; each host also counts as a run if its request was sent',
  fanout_hosts: 'Hosts of ended fan-outs',
  fanout_hosts_not_started: 'Hosts of ended fan-outs whose turn did not come',
  runs_detached: 'Detached runs that a target accepted',
  detached_asked: 'Queries sent about detached runs, including those that read output',
  rules_asked: 'Queries sent for the permitted commands',
  foreign_frames: 'Invalid messages on the stream of a run',
  peer_runs: 'Runs that peers opened on this machine',
  peer_rules_asked: 'Queries of peers for the permitted commands',
  peer_detached_asked: 'Queries of peers about their detached runs',
  approvers_asked: 'Requests sent to agents that must approve a run on this machine',
  peer_approvals_asked: 'Requests of peers for the approval of this agent',
  spans_exported: 'Trace spans that a collector accepted',
  spans_dropped: 'Trace spans that no collector accepted, and runs not traced because there were too many',
  peer_malformed: 'Streams of peers that ended because of a malformed message',
} as const

export type RequesterCounter = keyof typeof REQUESTER_COUNTERS

export class RequesterCounters extends Counters<RequesterCounter> {
  constructor() {
    super(REQUESTER_COUNTERS)
  }
}
