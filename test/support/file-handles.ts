import { open, type FileHandle } from 'node:fs/promises'
import { tmpdir } from 'node:os'

/** The prototype of all open files. Mocking one of its methods simulates a disk fault. */
export const fileHandles = async (): Promise<FileHandle> => {
  const handle = await open(tmpdir())
  await handle.close()
  return Object.getPrototypeOf(handle) as FileHandle
}
