import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { writeFileAtomic } from '../base/atomic-file.ts'
import { AppError, errnoOf, isMissing } from '../base/errors.ts'
import { assertOursAlone } from '../base/file-rights.ts'
import { sha256 } from '../identity/hash.ts'
import { MAX_STORE_BYTES } from '../protocol/desk-limits.ts'
import { toHex } from '../protocol/ids.ts'
import { type Store, readStore, storeText } from './store-shape.ts'

const PRIVATE = 0o600

/** A store as it stands on the disk, and what tells that it is still the same. */
export interface StoredStore {
  readonly store: Store
  /** Device, inode, size and times of the file: one that was changed, or replaced, has others. */
  readonly identity: string
  /** Of its bytes, hex. */
  readonly sha256: string
}

const bad = (file: string, problem: string, cause?: unknown): AppError =>
  new AppError('bad_approvals', `${file}: ${problem}`, { cause, data: { file } })

const openStore = async (path: string): Promise<FileHandle> => {
  try {
    // A link may lead to what others write; a named pipe would hold us.
    return await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    if (isMissing(error)) throw new AppError('not_found', `${path} is missing`, { cause: error, data: { file: path } })
    if (errnoOf(error) === 'ELOOP') throw bad(path, 'it is a link; put the file itself there', error)
    throw bad(path, `it cannot be opened (${errnoOf(error) ?? 'unknown'})`, error)
  }
}

const identityOf = async (file: FileHandle): Promise<{ readonly identity: string; readonly size: number; readonly isFile: boolean }> => {
  const info = await file.stat({ bigint: true })
  const identity = [info.dev, info.ino, info.size, info.mtimeNs, info.ctimeNs, info.mode, info.uid].join('.')
  return { identity, size: Number(info.size), isFile: info.isFile() }
}

/**
 * Reads the store, through the very descriptor that was checked; `known`, where the file is still that. Throws `not_found`
 * where there is none; `bad_approvals` for a link, a file that is no store or too large; `loose_permissions` for one that is not
 * ours alone.
 */
export const loadStore = async (path: string, known: StoredStore | null = null): Promise<StoredStore> => {
  const file = await openStore(path)
  try {
    const { identity, size, isFile } = await identityOf(file)
    if (identity === known?.identity) return known
    if (!isFile) throw bad(path, 'it is no regular file; move it away')
    assertOursAlone(path, await file.stat(), PRIVATE)
    if (size > MAX_STORE_BYTES) throw bad(path, `it has ${size} bytes, where ${MAX_STORE_BYTES} are allowed`)
    const bytes = await file.readFile()
    if ((await identityOf(file)).identity !== identity) throw bad(path, 'it changed while it was read')
    return { store: readStore(bytes, path), identity, sha256: toHex(sha256(bytes)) }
  } finally {
    await file.close()
  }
}

/**
 * Puts another store in the place of `before`, whole, 0600. `announce`: says on the disk what is done now, once there is room for
 * it, and throws where it must not be. Throws `conflict` where the file is no more what `before` was: what
 * somebody else has revoked meanwhile stays revoked.
 */
export const replaceStore = async (
  path: string,
  before: StoredStore,
  next: Store,
  announce: () => Promise<void> = async () => undefined,
): Promise<StoredStore> => {
  const text = storeText(next)
  if (Buffer.byteLength(text) > MAX_STORE_BYTES)
    throw new AppError('resource_limit', `${path} would have more than ${MAX_STORE_BYTES} bytes; revoke what is not needed any more`)
  // What cannot be read again is not written.
  readStore(Buffer.from(text), path)
  const same = async (): Promise<void> => {
    const there = await loadStore(path, before)
    if (there.sha256 !== before.sha256) throw new AppError('conflict', `${path} was changed by somebody else meanwhile; ask again`)
  }
  await same()
  await writeFileAtomic(path, text, PRIVATE, async () => {
    await announce()
    await same()
  })
  return loadStore(path)
}
