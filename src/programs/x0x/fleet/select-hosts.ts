import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'

/** Of a path with a query: a daemon reads 16 KiB of head. */
const MAX_SELECT_PATH = 12 * 1024

interface Selected {
  readonly hosts: readonly { readonly host: string; readonly agent_id: string }[]
}

/** The daemon's answer to whom the words mean. Throws `bad_request` where they are too many for one question. */
export const selectHosts = async <T>({ api }: CliContext, who: readonly string[]): Promise<T> => {
  const path = `/contacts/select?${who.map((word) => `expr=${encodeURIComponent(word)}`).join('&')}`
  if (path.length > MAX_SELECT_PATH)
    throw usageError('so many words cannot be asked', 'name them as a node set, such as web[1-20], by a label or as a group')
  return api.json<T>({ method: 'GET', path })
}

/** Whom the words mean. */
export const selectedHosts = async (context: CliContext, who: readonly string[]): Promise<Selected['hosts']> =>
  (await selectHosts<Selected>(context, who)).hosts
