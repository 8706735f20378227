import { statfs } from 'node:fs/promises'

/** The floor of free space, in bytes and as a share of the disk: below it a journal takes only the ends of runs. */
const MIN_FREE_BYTES = 64 * 1024 * 1024
const MIN_FREE_SHARE = 0.05

/** What is free on a disk; bytes. */
export interface Room {
  readonly free: number
  /** Above the floor; below 0: under it. */
  readonly spare: number
}

/** Free space where a directory is; `floors`: how many floors are left free. */
export const diskRoom = async (directory: string, floors: number): Promise<Room> => {
  const { bavail, bfree, blocks, bsize } = await statfs(directory)
  const free = process.geteuid?.() === 0 ? bfree : bavail
  // File systems without blocks of their own report none at all.
  if (blocks === 0) return { free: Infinity, spare: Infinity }
  const floor = floors * Math.min(MIN_FREE_BYTES, blocks * bsize * MIN_FREE_SHARE)
  return { free: free * bsize, spare: free * bsize - floor }
}
