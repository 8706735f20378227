import type { AnyRunKey, JournalEvent } from './events.ts'

/** What has begun and not ended, kept apart from the journal, so that a start after a crash need not read it. */
export interface RunMarks {
  /** Answers the runs of those who died. */
  open(): Promise<readonly AnyRunKey[]>
  /** Does this line begin a run that is marked? */
  marks(event: JournalEvent): event is JournalEvent & AnyRunKey
  /** Throws where a run without a mark must not be. */
  add(key: AnyRunKey): Promise<void>
  /** Is it marked by us? */
  has(key: AnyRunKey): boolean
  remove(key: AnyRunKey): Promise<void>
}
