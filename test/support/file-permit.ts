import assert from 'node:assert/strict'
import { chmod, mkdir, mkdtemp, readdir, realpath, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import type { TestContext } from 'node:test'

import { isAppError, type ErrorCode } from '../../src/base/errors.ts'
import { sealFilePermit, type FileAccess, type FilePermit, type FilePermitFields, type Root } from '../../src/policy/local/file-permit.ts'

/** A root for this directory, as policy would resolve it now. */
export const rootAt = async (path: string): Promise<Root> => {
  const real = await realpath(path)
  const { dev, ino } = await stat(real, { bigint: true })
  return { path, real, dev, ino }
}

type PermitBelow = (path?: string, access?: FileAccess, fields?: Partial<FilePermitFields>) => FilePermit

const MAX_READ_BYTES = 1_048_576

/** Returns a function that makes permits for paths below a directory, which is the only root. */
export const rootPermits = async (directory: string): Promise<PermitBelow> => {
  const root = await rootAt(directory)
  return (path = '', access = 'read', fields = {}) => {
    const names = path === '' ? [] : path.split('/')
    return sealFilePermit({ access, root, names, roots: [root], max_read_bytes: MAX_READ_BYTES, ...fields })
  }
}

/** Two adjacent directories. One is a root. The other one is outside, and file commands must never read or change it. */
export interface Scene {
  readonly inside: string
  readonly outside: string
  readonly root: Root
  /** Makes a permit for a path below the root. */
  readonly permit: PermitBelow
}

export const fileScene = async (t: Pick<TestContext, 'after'>): Promise<Scene> => {
  const base = await mkdtemp(join(await realpath(tmpdir()), 'x0x-fs-'))
  t.after(() => rm(base, { recursive: true, force: true, maxRetries: 10 }))
  // The user `nobody` must be able to enter, too.
  await chmod(base, 0o755)
  const [inside, outside] = [join(base, 'app'), join(base, 'app2')]
  await mkdir(inside)
  await mkdir(outside)
  return { inside, outside, root: await rootAt(inside), permit: await rootPermits(inside) }
}

/** Fails with this code and at least these data. Internal paths must not appear in the message. */
export const refuses = (work: Promise<unknown>, code: ErrorCode, data: Record<string, unknown> = {}): Promise<void> =>
  assert.rejects(work, (error) => {
    assert.ok(isAppError(error, code), `${String(error)}${error instanceof Error ? error.stack : ''}`)
    for (const [key, value] of Object.entries(data)) assert.deepEqual(error.data[key], value, `data.${key} of ${error.message}`)
    assert.doesNotMatch(error.message, /\/proc\/self\//)
    return true
  })

/** Every path below a directory, sorted, so that a test also sees unexpected files. */
export const everythingIn = async (directory: string): Promise<string[]> => {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true })
  return entries.map((entry) => relative(directory, join(entry.parentPath, entry.name))).toSorted()
}

const NOBODY = 65_534

/** Runs `work` with the rights of a user who owns no files. Without root, it runs with our own rights. */
export const asNobody = async (work: () => Promise<void>): Promise<void> => {
  if (process.geteuid?.() !== 0) return work()
  process.seteuid?.(NOBODY)
  try {
    await work()
  } finally {
    process.seteuid?.(0)
  }
}
