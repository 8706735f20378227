import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

/** A private temporary directory that is removed after the test. */
export const tempDir = async (t: Pick<TestContext, 'after'>): Promise<string> => {
  const path = await mkdtemp(join(tmpdir(), 'x0x-test-'))
  t.after(() => rm(path, { recursive: true, force: true, maxRetries: 10 }))
  return path
}
