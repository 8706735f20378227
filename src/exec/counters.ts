import { Counters } from '../base/metrics.ts'

/** Counters of the requester with their help texts. `docs/observability.md` is generated from them. */
export const REQUESTER_COUNTERS = {
  runs_requested: 'Requests sent, also to this agent',
  runs_completed: 'Runs with a verified result and complete output, or denied',
  runs_denied: 'Denied runs',
  runs_incomplete: 'Runs with an unknown result, or missing or altered output',
  runs_resumed: 'Runs resumed over another connection',
  requests_denied_for_now: 'Requests that a draining target denied and that were repeated',
  requests_sent_again: 'Requests that did not arrive and were resent',
  runs_cancelled: 'Runs cancelled by request or client disconnect',
  fanouts: 'Fan-outs; asked hosts also count as runs',
  fanout_hosts: 'Hosts of ended fan-outs',
  fanout_hosts_not_started: 'Hosts of ended fan-outs, not asked',
  runs_detached: 'Detached runs that a target accepted',
  detached_asked: 'Queries about detached runs, with reads',
  rules_asked: 'Queries for permitted commands',
  foreign_frames: 'Invalid messages on run streams',
  peer_runs: 'Runs of peers on this machine',
  peer_rules_asked: 'Queries of peers for permitted commands',
  peer_detached_asked: 'Queries of peers about their detached runs',
  approvers_asked: 'Requests to approvers of runs on this machine',
  peer_approvals_asked: "Requests of peers for this agent's approval",
  spans_exported: 'Trace spans that a collector accepted',
  spans_dropped: 'Trace spans and runs that were not exported',
  peer_malformed: 'Streams of peers ended by a malformed message',
} as const

export type RequesterCounter = keyof typeof REQUESTER_COUNTERS

export class RequesterCounters extends Counters<RequesterCounter> {
  constructor() {
    super(REQUESTER_COUNTERS)
  }
}
