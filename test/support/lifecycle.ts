import { LifecycleLog } from '../../src/protocol/events/event-log.ts'

/** What a test reads events of runs from. */
export const newLifecycleLog = (id = '0'.repeat(12)): LifecycleLog => new LifecycleLog({ id, now: () => Date.now() })
