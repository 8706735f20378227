import { ASKS, HOSTS, SECURITIES } from '../desk/approval-request.ts'
import { type Sent, oneOf, orNull, record, text } from '../json-table.ts'

const WISH = { host: orNull(oneOf(HOSTS)), security: orNull(oneOf(SECURITIES)), ask: orNull(oneOf(ASKS)), node: orNull(text) }
export const RAN_ON = { host: oneOf(HOSTS), agent_id: orNull(text), name: orNull(text) }
const CUT = { key: text, asked: text, got: text }

/** A client's preferences for one run. They name a host among the allowed ones, and narrower modes. Null means no preference. */
export type ExecPreference = Sent<typeof WISH>
/** Host of a command. `agent_id` is that of a node, or null for this host. `name` is that of the host, or null without a name. */
export type RanOnJson = Sent<typeof RAN_ON>
/** A preference that exceeded the configuration, and its replacement. */
export type ClampedPreferenceJson = Sent<typeof CUT>

export const execPreference = record(WISH)
export const ranOn = record(RAN_ON)
export const clampedPreference = record(CUT)

/** Completes a partial preference, or null at all. */
export const preferenceOf = (given: { readonly [K in keyof ExecPreference]?: ExecPreference[K] | undefined }): ExecPreference | null => {
  const { host = null, security = null, ask = null, node = null } = given
  return host === null && security === null && ask === null && node === null ? null : { host, security, ask, node }
}

/** The tool call that requested a run. */
export interface ToolFacts {
  readonly operation: string
  /** SHA-256 as hex of the idempotency key and the client's name, or null without a key. */
  readonly key_sha256: string | null
  /** SHA-256 as hex of the whole call, so that equal calls have equal values. */
  readonly call_sha256: string
}

/** Facts from the audit log about an earlier run with an idempotency key. */
export interface JournalledFacts extends Pick<ToolFacts, 'call_sha256'> {
  /** ISO 8601. */
  readonly started_at: string
  /** Null on a target, which does not report it. */
  readonly cwd: string | null
  readonly timeout_ms: number
  /** True if the target reduced the timeout. */
  readonly timeout_clamped: boolean
  readonly timed_out: boolean
  /** Null if the run left no process. */
  readonly descendants_ended: number | null
}
