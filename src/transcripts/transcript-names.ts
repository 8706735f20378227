import { AppError } from '../base/errors.ts'

/** `2026-05-21-09:42:18`: when it begins, in UTC. */
const NAME = /^\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d$/
const SUFFIX = '.jsonl'
/** Holds ended commands that wait for an earlier one. */
const WAITING_SUFFIX = '.waiting'

export const nameAt = (ms: number): string => new Date(ms).toISOString().slice(0, 19).replace('T', '-')

/** Throws `bad_request` for what can be no transcript's name, and so for every path. */
export const checkName = (name: string): void => {
  if (NAME.test(name)) return
  throw new AppError('bad_request', `${JSON.stringify(name.slice(0, 100))} is no name of a transcript`, {
    data: { next: 'a name is like 2026-05-21-09:42:18; those that there are: x0x transcripts list' },
  })
}

/** Null for a file that is no transcript. */
export const nameOfFile = (file: string): string | null => {
  const name = file.slice(0, -SUFFIX.length)
  return file.endsWith(SUFFIX) && NAME.test(name) ? name : null
}

/** The files of a transcript, below its directory. */
export const filesOf = (name: string): { readonly entries: string; readonly waiting: string } => {
  checkName(name)
  return { entries: `${name}${SUFFIX}`, waiting: `${name}${WAITING_SUFFIX}` }
}
