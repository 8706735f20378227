import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtemp, rmdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

/** Why a test without a small file system is skipped. */
export const NO_DISK = 'a small file system cannot be mounted here'

/** A file system of this size, or null if this process may not mount one. */
export const smallDisk = async (t: Pick<TestContext, 'after'>, kib: number): Promise<string | null> => {
  const directory = await mkdtemp(join(tmpdir(), 'x0x-test-'))
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${kib}k`, 'tmpfs', directory])
  t.after(async () => {
    if (status === 0) assert.equal(spawnSync('umount', ['-l', directory]).status, 0)
    await rmdir(directory)
  })
  return status === 0 ? directory : null
}
