import { AppError } from '../base/errors.ts'

/** Of a path with a query: a daemon reads 16 KiB of head. */
const MAX_SELECT_PATH = 12 * 1024

/** Where the daemon is asked whom words mean. Throws `bad_request` where they are too many for one question. */
export const selectPath = (who: readonly string[]): string => {
  const path = `/contacts/select?${who.map((word) => `expr=${encodeURIComponent(word)}`).join('&')}`
  if (path.length <= MAX_SELECT_PATH) return path
  throw new AppError('bad_request', 'so many words cannot be asked', {
    data: { next: 'name them as a node set, such as web[1-20], by a label or as a group' },
  })
}
