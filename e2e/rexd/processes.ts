import assert from 'node:assert/strict'

import { isRunning, until } from '../../test/support/mesh-of-daemons.ts'

/** From SIGTERM to SIGKILL it is five seconds; the rest is for a slow machine. */
const PATIENCE_MS = 20_000

/** Waits until none of these processes is there any more, of which there must have been some. */
export const allGone = async (pids: readonly number[]): Promise<void> => {
  assert.ok(pids.length > 0, 'no process was named')
  await until(`processes ${pids.join(', ')} are gone`, () => !pids.some(isRunning), PATIENCE_MS)
}
