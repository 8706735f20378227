import { selectPath } from '../../../clients/select-path.ts'
import type { SelectedHosts } from '../../../protocol/api-answers.ts'
import type { CliContext } from '../context.ts'

/** The daemon's answer to whom the words mean. */
export const selectHosts = async <T>({ api }: CliContext, who: readonly string[]): Promise<T> =>
  api.json<T>({ method: 'GET', path: selectPath(who) })

/** Whom the words mean. */
export const selectedHosts = async (context: CliContext, who: readonly string[]): Promise<SelectedHosts['hosts']> =>
  (await selectHosts<SelectedHosts>(context, who)).hosts
