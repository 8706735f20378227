import { open, type FileHandle } from 'node:fs/promises'
import { tmpdir } from 'node:os'

/** What all open files have in common: a mock of a method of it is a fault of the disk. */
export const fileHandles = async (): Promise<FileHandle> => {
  const handle = await open(tmpdir())
  await handle.close()
  return Object.getPrototypeOf(handle) as FileHandle
}
