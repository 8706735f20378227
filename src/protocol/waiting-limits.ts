/** Limits of runs that wait until somebody allows them, each with its reason. Times are milliseconds. */

/** The longest that a question is asked: a human who has gone to lunch is none that one waits for. */
export const MAX_APPROVAL_WAIT_MS = 30 * 60 * 1000
/** Agents that one entry of an ACL may name as approvers. Each is asked on a stream of its own. */
export const MAX_MESH_APPROVERS = 16
/** A question to another agent, as JSON: it fits one frame beside its signature. What is longer nobody is asked about. */
export const MAX_APPROVAL_QUESTION = 48 * 1024
/** Machines of one approver that are asked at once: whoever sits at one of them answers for the agent. */
export const MAX_APPROVER_MACHINES = 4
/** Between two tries to reach an approver: the first, and the longest that it grows to. */
export const APPROVER_RETRY_MS = 2_000
export const MAX_APPROVER_RETRY_MS = 30_000
/** Questions to approvers under way at once: every waiting run may ask some. */
export const MAX_APPROVER_ASKS = 1_024
/** Waiting runs of one agent, whatever its machines: an approver reads no more questions of one requester. */
export const MAX_WAITING_OF_AGENT = 16
/** … and of all together: what a desk keeps. */
export const MAX_WAITING_RUNS = 256
/** Stdin that waiting runs may be sent ahead, all together: they hold no slot, so the memory of `MAX_STDIN_HELD` is not theirs. */
export const MAX_WAITING_STDIN = 32 * 1024 * 1024
/** … of those of one agent, whatever its machines: the rest is left to others. Four with as much as may be on its way. */
export const MAX_WAITING_STDIN_OF_AGENT = MAX_WAITING_STDIN / 4
/** Questions that one agent may bring about at once, and from then on: each wants a human's eye and leaves lines in two journals. */
export const QUESTION_BURST = 32
export const QUESTIONS_PER_SECOND = 1
/** Waiting frames of one run that a requester accepts on one stream: one for each approval, and the first. */
export const MAX_WAITING_FRAMES = 2 * MAX_MESH_APPROVERS
