import type { TimeSlice } from '../../base/time-slices.ts'
import { MAX_FILE_CHUNK_BYTES, MAX_FILE_ERROR_BYTES } from '../../protocol/limits/files.ts'
import type { ExecRule } from '../../protocol/wire/exec.ts'
import { isWithin } from '../sandbox/autostart-places.ts'
import type { AllowEntry } from './acl.ts'
import { type MatchedGrant, hasRight, ruleOf } from './file-grants.ts'

export type RuleCaps = Omit<ExecRule, 'description' | 'argv'>

/** A rule that some request of the pair can reach. */
export interface Reached {
  readonly entry: AllowEntry
  readonly argv: readonly string[]
  /** Minimum limits of all requests that match the rule. */
  readonly caps: RuleCaps
}

/**
 * The roots below which a pair may read or write, as rules such as `@read /srv/app/`. Tables below the root of an earlier table are left
 * out. If an earlier table has a root below this one, the shorter time is reported.
 */
export const reachedFiles = async (entries: readonly AllowEntry[], time: TimeSlice): Promise<Reached[]> => {
  const found: Reached[] = []
  for (const right of ['read', 'write'] as const) {
    const before: MatchedGrant<AllowEntry>[] = []
    for (const place of entries.flatMap((entry) => entry.files.map((grant) => ({ entry, grant })))) {
      if (time.shouldYield) await time.yieldTurn()
      const { entry, grant } = place
      if (!hasRight(grant, right) || before.some((one) => isWithin(grant.root, one.grant.root))) continue
      const sharers = before.filter((one) => isWithin(one.grant.root, grant.root))
      before.push(place)
      const seconds = [place, ...sharers].reduce((least, one) => Math.min(least, one.entry.limits.max_duration_secs), Infinity)
      found.push({ entry, argv: ruleOf(grant, right), caps: capsOf(right, seconds) })
    }
  }
  return found
}

const capsOf = (right: 'read' | 'write', seconds: number): RuleCaps => ({
  timeout_ms: seconds * 1000,
  max_stdout_bytes: MAX_FILE_CHUNK_BYTES,
  max_stderr_bytes: MAX_FILE_ERROR_BYTES,
  max_stdin_bytes: right === 'write' ? MAX_FILE_CHUNK_BYTES : 0,
  detach: null,
  terminal: false,
  record: false,
  watch: false,
})
