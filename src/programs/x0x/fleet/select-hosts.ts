import { selectPath } from '../../../local-api/select-path.ts'
import type { CliContext } from '../context.ts'

interface Selected {
  readonly hosts: readonly { readonly host: string; readonly agent_id: string }[]
}

/** The daemon's answer to whom the words mean. */
export const selectHosts = async <T>({ api }: CliContext, who: readonly string[]): Promise<T> =>
  api.json<T>({ method: 'GET', path: selectPath(who) })

/** Whom the words mean. */
export const selectedHosts = async (context: CliContext, who: readonly string[]): Promise<Selected['hosts']> =>
  (await selectHosts<Selected>(context, who)).hosts
