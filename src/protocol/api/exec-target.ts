import { ASKS, HOSTS, SECURITIES } from '../desk/approval-request.ts'
import { type Sent, oneOf, orNull, record, text } from '../json-table.ts'

const WISH = { host: orNull(oneOf(HOSTS)), security: orNull(oneOf(SECURITIES)), ask: orNull(oneOf(ASKS)), node: orNull(text) }
export const RAN_ON = { host: oneOf(HOSTS), agent_id: orNull(text), name: orNull(text) }
const CUT = { key: text, asked: text, got: text }

/** What a caller wishes for one run: it chooses among the hosts that are open to it, and narrows the rest. Null: nothing. */
export type ExecPreference = Sent<typeof WISH>
/** Where a command runs. `agent_id`: of a node; null: this host. `name`: of this host, or of the contact; null: it has none. */
export type RanOnJson = Sent<typeof RAN_ON>
/** A wish that was wider than what is configured, and what it got. */
export type ClampedPreferenceJson = Sent<typeof CUT>

export const execPreference = record(WISH)
export const ranOn = record(RAN_ON)
export const clampedPreference = record(CUT)

/** The wish of a caller who may leave any of it out; null: of all of it. */
export const preferenceOf = (given: { readonly [K in keyof ExecPreference]?: ExecPreference[K] | undefined }): ExecPreference | null => {
  const { host = null, security = null, ask = null, node = null } = given
  return host === null && security === null && ask === null && node === null ? null : { host, security, ask, node }
}

/** The tool that asked for a run. */
export interface ToolFacts {
  readonly operation: string
  /** SHA-256, hex, of the idempotency key with the name of its caller; null: there was none. */
  readonly key_sha256: string | null
  /** SHA-256, hex, of all that was asked for: equal for equal calls. */
  readonly call_sha256: string
}

/** What is known later of a run that was begun with a key, however it ended. */
export interface JournalledFacts extends Pick<ToolFacts, 'call_sha256'> {
  /** ISO 8601. */
  readonly started_at: string
  /** Null: on a target, which does not say. */
  readonly cwd: string | null
  readonly timeout_ms: number
  /** By its target. */
  readonly timeout_clamped: boolean
  readonly timed_out: boolean
  /** Null: it left no process running. */
  readonly descendants_ended: number | null
}
