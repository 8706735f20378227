import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'

/** Of a path with a query: a daemon reads 16 KiB of head. */
const MAX_SELECT_PATH = 12 * 1024

interface Selected {
  readonly hosts: readonly { readonly host: string; readonly agent_id: string }[]
}

/** Whom the words mean. */
export const selectedHosts = async ({ api }: CliContext, who: readonly string[]): Promise<Selected['hosts']> => {
  const path = `/contacts/select?${who.map((word) => `expr=${encodeURIComponent(word)}`).join('&')}`
  if (path.length > MAX_SELECT_PATH)
    throw usageError('so many words cannot be asked', 'name them as a node set, such as web[1-20], or by a label')
  return (await api.json<Selected>({ method: 'GET', path })).hosts
}
