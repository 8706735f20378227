import type { RecalledRun as JournalledRun } from '../../audit/recalled-runs.ts'
import { AppError, errorCodeOf } from '../../base/errors.ts'
import type { LocalOutcome, RecalledEnd, RecalledRun } from '../port/local-executor.ts'

const endOf = (end: JournalledRun['end']): RecalledEnd => {
  if (end.kind === 'refused') return { kind: 'refused', error: new AppError(errorCodeOf(end.code), end.detail) }
  if (end.kind !== 'exit') return { kind: end.kind === 'goes_on' ? end.kind : 'unknown' }
  const { kind: _kind, stdout_bytes, stderr_bytes, ...facts } = end
  const totals = { stdout_bytes_total: stdout_bytes, stderr_bytes_total: stderr_bytes }
  const outcome: LocalOutcome = { ...facts, ...totals, denial_reason: null, detail: null, lost: null }
  return { kind: 'outcome', outcome }
}

/** A run that the journal knows, as doors are told of it. */
export const recalledRun = ({ request_id: _id, end, ...facts }: JournalledRun): RecalledRun => ({ ...facts, end: endOf(end) })
