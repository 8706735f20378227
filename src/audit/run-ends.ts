import type { AnyRunKey, JournalEvent } from './events.ts'
import { parseLine } from './parse-line.ts'
import { tailJournal } from './tail.ts'

/** Where a start after a crash looks for ends that were written: three of the largest batches, and no mark outlives one. */
const MAX_RECOVERY_LINES = 10_000

/** One text for each run. */
export const keyOf = (key: AnyRunKey): string =>
  'agent_id' in key ? `${key.agent_id}.${key.machine_id}.${key.request_id}` : `${key.session_id}.${key.request_id}`

/** Another denial may be of a request that only used a running one's id. */
export const endsRun = (event: JournalEvent): event is JournalEvent & AnyRunKey =>
  event.event === 'exit' ||
  event.event === 'lost' ||
  (event.event === 'denial' && event.reason === 'spawn_failed') ||
  (event.event === 'refused' && event.request_id !== undefined)

/** Which of these runs have their end among the journal's last MAX_RECOVERY_LINES lines, as `keyOf` names them. */
export const endedAmong = async (path: string, runs: readonly AnyRunKey[]): Promise<ReadonlySet<string>> => {
  const wanted = new Set(runs.map(keyOf))
  const ended = new Set<string>()
  if (wanted.size === 0) return ended
  for await (const text of tailJournal(path, { lines: MAX_RECOVERY_LINES, follow: false })) {
    const line = parseLine(Buffer.from(text))
    if (line !== null && endsRun(line) && wanted.has(keyOf(line))) ended.add(keyOf(line))
  }
  return ended
}
