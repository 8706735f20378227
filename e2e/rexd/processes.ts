import assert from 'node:assert/strict'

import { isRunning, until } from '../../test/support/mesh-of-daemons.ts'

/** There are five seconds between SIGTERM and SIGKILL. The rest is for a slow machine. */
const PATIENCE_MS = 20_000

/** Waits until all of these processes are gone. There must be at least one. */
export const allGone = async (pids: readonly number[]): Promise<void> => {
  assert.ok(pids.length > 0, 'no process was named')
  await until(`processes ${pids.join(', ')} are gone`, () => !pids.some(isRunning), PATIENCE_MS)
}
