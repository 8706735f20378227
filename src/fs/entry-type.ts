import type { BigIntStats, Dirent } from 'node:fs'

/** What stands at a path; `other` is a device, a pipe or a socket. */
export type EntryType = 'file' | 'dir' | 'symlink' | 'other'

export const entryTypeOf = (info: Pick<Dirent | BigIntStats, 'isFile' | 'isDirectory' | 'isSymbolicLink'>): EntryType =>
  info.isFile() ? 'file' : info.isDirectory() ? 'dir' : info.isSymbolicLink() ? 'symlink' : 'other'
