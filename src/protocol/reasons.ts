/** Why a request was not run. The wire, the audit log and diagnostics use these names. */
export const DENIAL_REASONS = [
  'unverified_sender',
  'trust_rejected',
  'request_id_used',
  'draining',
  'exec_disabled',
  'agent_machine_not_in_acl',
  'shell_metachar_in_argv',
  'argv_not_allowed',
  'cwd_not_allowed',
  'detach_not_allowed',
  'terminal_not_allowed',
  'stdin_too_large',
  'timeout_too_large',
  'concurrency_limit_reached',
  'approval_denied',
  'approval_timeout',
  'approval_unavailable',
  'approval_mismatch',
  'audit_unavailable',
  'recording_unavailable',
  'spawn_failed',
] as const
export type DenialReason = (typeof DENIAL_REASONS)[number]

/** True for a denial because the requester is not verified or not trusted. Any peer can cause one. */
export const isOfUnlisted = (reason: DenialReason | null): boolean => reason === 'unverified_sender' || reason === 'trust_rejected'

/** Why an HTTP call is refused before it has any effect, as codes of the error table. */
export const HTTP_REFUSALS = ['unauthorized', 'forbidden_host', 'rate_limited'] as const
export type HttpRefusalCode = (typeof HTTP_REFUSALS)[number]

/** Warnings to requester and operator about a running or ended run. */
export const WARNING_KINDS = [
  'stdout_approaching_cap',
  'stderr_approaching_cap',
  'duration_approaching_cap',
  'stdout_cap_hit',
  'stderr_cap_hit',
  'duration_cap_hit',
  'timeout_clamped',
  'cancelled',
  'lease_expired',
  'peer_disconnected',
  'stdin_mismatch',
  'descendant_held_output',
  'output_lost',
  'daemon_stopping',
  'access_revoked',
  'ended_by_operator',
  'descendants_may_survive',
  'descendants_ended',
  'target_draining',
  'session_recorded',
  'session_watchable',
  'session_watched',
  'recording_failed',
] as const
export type WarningKind = (typeof WARNING_KINDS)[number]

/** Warnings that tell the requester who else sees what a command shows. They say nothing about its end. */
export const SESSION_NOTICES = ['session_recorded', 'session_watchable', 'session_watched'] as const satisfies readonly WarningKind[]
export type SessionNotice = (typeof SESSION_NOTICES)[number]

/** Text of the warning `descendants_ended`. It begins with the number, because the wire format has no other place for it. */
export const leftBehindText = (count: number): string =>
  count === 1
    ? '1 process that the command left running was ended with it'
    : `${count} processes that the command left running were ended with it`

/** The number at the beginning of that text. A peer with another text ended at least one process. */
export const leftBehindIn = (text: string): number => Number(/^[1-9]\d{0,8}(?= )/.exec(text)?.[0] ?? 1)

export const OUTPUT_NAMES = ['stdout', 'stderr'] as const
export type OutputName = (typeof OUTPUT_NAMES)[number]

/** States of a run on this host for another agent. */
export const RUN_STATES = ['waiting_for_approval', 'running', 'ending'] as const
export type RunState = (typeof RUN_STATES)[number]

/** States of a detached run, see `Detached` in docs/protocol.md. */
export const DETACHED_STATES = ['waiting', 'running', 'ended', 'lost', 'expired', 'unknown'] as const
export type DetachedState = (typeof DETACHED_STATES)[number]

/** Approvers of a waiting run, which are a local approver, mesh agents, or both. The rule is not revealed. */
export const WAITING_REASONS = ['human', 'approvers', 'human_and_approvers'] as const
export type WaitingReason = (typeof WAITING_REASONS)[number]

/** How the processes of a run are kept together, strongest first. */
export const CONTAINMENTS = ['cgroup', 'pid_namespace', 'group'] as const
export type Containment = (typeof CONTAINMENTS)[number]

/** Values of the setting `dht`. `auto` means `client` with a bootstrap list, `server` with an announced address in addition, else `off`. */
export const DHT_CHOICES = ['auto', 'off', 'client', 'server'] as const

/** Values of the configuration. `auto` selects the strongest that is cheap and works. */
export const CONTAINMENT_CHOICES = ['auto', ...CONTAINMENTS] as const
export type ContainmentChoice = (typeof CONTAINMENT_CHOICES)[number]

/** Interfaces by which a local client can run programs and read files. */
export const LOCAL_INTERFACES = ['stdio', 'http', 'websocket', 'mcp', 'console'] as const
export type LocalInterface = (typeof LOCAL_INTERFACES)[number]

/** Trust levels of contacts. Only the operator sets them. */
export const TRUST_LEVELS = ['blocked', 'unknown', 'known', 'trusted'] as const
export type TrustLevel = (typeof TRUST_LEVELS)[number]

/** Reasons of a trust decision about one (agent, machine). */
export const TRUST_CAUSES = [
  'own_agent',
  'revoked',
  'no_contact',
  'blocked',
  'pinned_elsewhere',
  'level_unknown',
  'known',
  'known_and_pinned',
  'trusted',
  'trusted_and_pinned',
] as const
export type TrustCause = (typeof TRUST_CAUSES)[number]

/** Decisions of the trust rules about one (agent, machine). Exec needs `accept`. */
export const TRUST_DECISIONS = [
  'accept',
  'accept_with_flag',
  'unknown',
  'reject_blocked',
  'reject_machine_mismatch',
  'reject_revoked',
] as const
export type TrustDecision = (typeof TRUST_DECISIONS)[number]

/** Local secrets that an operator can renew. */
export const ROTATED_TOKENS = ['api_token', 'metrics_token', 'operator_key'] as const

/** Why an operator refuses to enrol a host. `busy` and `failed` mean that the host may ask again. */
export const ENROL_REFUSALS = [
  'unknown_key',
  'wrong_proof',
  'expired',
  'revoked',
  'used_up',
  'already_enrolled',
  'already_contact',
  'agent_revoked',
  'name_taken',
  'name_unknown',
  'busy',
  'failed',
] as const
export type EnrolRefusal = (typeof ENROL_REFUSALS)[number]
