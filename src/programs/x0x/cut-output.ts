import { shellWord } from '../../base/format.ts'
import type { WarningKind } from '../../protocol/reasons.ts'

interface Warned {
  readonly warnings: readonly WarningKind[]
}

/** Warnings about lost output, which are also printed with --quiet and --json. */
export const CUT_WARNINGS: readonly WarningKind[] = ['stdout_cap_hit', 'stderr_cap_hit']

/** `stdout was cut (stdout_cap_hit)`; null if nothing was cut. */
export const cutText = ({ warnings }: Warned): string | null => {
  const kinds = CUT_WARNINGS.filter((kind) => warnings.includes(kind))
  if (kinds.length === 0) return null
  const streams = kinds.map((kind) => kind.replace('_cap_hit', ''))
  return `${streams.join(' and ')} ${kinds.length === 1 ? 'was' : 'were'} cut (${kinds.join(', ')})`
}

/** How to avoid the loss in the next run. */
export const cutNext = (agent: string): string =>
  `Try: less output, or a larger max_stdout_bytes or max_stderr_bytes in the ACL on ${shellWord(agent)}`

/** Lines for standard error about a detached run whose output is not printed. Empty if nothing was cut. */
export const detachedCutLines = (run: { readonly request_id: string; readonly outcome: Warned | null }): string[] => {
  const text = run.outcome && cutText(run.outcome)
  return text === null ? [] : [`${run.request_id}: ${text}`, 'Try: a larger --keep, up to max_detach_output_bytes of its ACL entry']
}
