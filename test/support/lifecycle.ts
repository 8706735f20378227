import { LifecycleLog } from '../../src/protocol/events/event-log.ts'

/** A log from which a test reads run events. */
export const newLifecycleLog = (id = '0'.repeat(12)): LifecycleLog => new LifecycleLog({ id, now: () => Date.now() })
