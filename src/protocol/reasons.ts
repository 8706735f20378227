/** Why a request was not run: on the wire, in the journal and in diagnostics, in this spelling. */
export const DENIAL_REASONS = [
  'unverified_sender',
  'trust_rejected',
  'request_id_used',
  'exec_disabled',
  'agent_machine_not_in_acl',
  'shell_metachar_in_argv',
  'argv_not_allowed',
  'cwd_not_allowed',
  'detach_not_allowed',
  'stdin_too_large',
  'timeout_too_large',
  'concurrency_limit_reached',
  'approval_denied',
  'approval_timeout',
  'approval_unavailable',
  'approval_mismatch',
  'audit_unavailable',
  'spawn_failed',
] as const
export type DenialReason = (typeof DENIAL_REASONS)[number]

/** Denied before anything is known of who asks: anybody in the world may bring it about. */
export const isOfUnlisted = (reason: DenialReason | null): boolean => reason === 'unverified_sender' || reason === 'trust_rejected'

/** Why a call over HTTP is refused before anything is done: codes of the error table. */
export const HTTP_REFUSALS = ['unauthorized', 'forbidden_host', 'rate_limited'] as const
export type HttpRefusalCode = (typeof HTTP_REFUSALS)[number]

/** What a requester and an operator are told while a run goes on, or about how it ended. */
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
] as const
export type WarningKind = (typeof WARNING_KINDS)[number]

/** What a program writes. */
export const OUTPUT_NAMES = ['stdout', 'stderr'] as const
export type OutputName = (typeof OUTPUT_NAMES)[number]

/** How far what runs here for another agent has come. */
export const RUN_STATES = ['waiting_for_approval', 'running', 'ending'] as const
export type RunState = (typeof RUN_STATES)[number]

/** What may be said of a run that outlives its caller; see `Detached` in docs/protocol.md. */
export const DETACHED_STATES = ['waiting', 'running', 'ended', 'lost', 'expired', 'unknown'] as const
export type DetachedState = (typeof DETACHED_STATES)[number]

/** Whom a run waits for: a human of its host, other agents, or both. Which rule says so is not told. */
export const WAITING_REASONS = ['human', 'approvers', 'human_and_approvers'] as const
export type WaitingReason = (typeof WAITING_REASONS)[number]

/** What holds the processes of a run together, strongest first. */
export const CONTAINMENTS = ['cgroup', 'pid_namespace', 'group'] as const
export type Containment = (typeof CONTAINMENTS)[number]

/** The setting `dht`; `auto` is `client` where a bootstrap list says that there is a mesh beyond the neighbourhood, `server` where an address is announced as well, else `off`. */
export const DHT_CHOICES = ['auto', 'off', 'client', 'server'] as const

/** What the configuration may ask for; `auto`: the strongest that costs little and works. */
export const CONTAINMENT_CHOICES = ['auto', ...CONTAINMENTS] as const
export type ContainmentChoice = (typeof CONTAINMENT_CHOICES)[number]

/** Doors by which a caller of this host may have programs run and files read here. */
export const LOCAL_INTERFACES = ['stdio', 'http', 'websocket', 'mcp', 'console'] as const
export type LocalInterface = (typeof LOCAL_INTERFACES)[number]

/** What a contact is worth; only the operator sets it. */
export const TRUST_LEVELS = ['blocked', 'unknown', 'known', 'trusted'] as const
export type TrustLevel = (typeof TRUST_LEVELS)[number]

/** Why the trust rules say what they say of one (agent, machine). */
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

/** What the trust rules say of one (agent, machine) at this moment. Exec needs `accept`. */
export const TRUST_DECISIONS = [
  'accept',
  'accept_with_flag',
  'unknown',
  'reject_blocked',
  'reject_machine_mismatch',
  'reject_revoked',
] as const
export type TrustDecision = (typeof TRUST_DECISIONS)[number]

/** Secrets of this host's callers that an operator has made anew. */
export const ROTATED_TOKENS = ['api_token', 'metrics_token', 'operator_key'] as const
