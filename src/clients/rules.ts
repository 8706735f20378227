import { AppError } from '../base/errors.ts'
import { RULES, type RulesJson } from '../protocol/api/rules.ts'
import { parseForeignArgv } from '../protocol/argv-template.ts'
import { isHexId } from '../protocol/ids.ts'
import { isTable, problemOf } from '../protocol/json-table.ts'
import type { LocalApi } from './daemon.ts'

/**
 * Asks an agent, through the daemon, which commands it allows. `agent` is as the user typed it. Throws the daemon's errors, and
 * `daemon_unreachable` for an invalid answer.
 */
export const askRules = async (api: Pick<LocalApi, 'json'>, agent: string, signal?: AbortSignal): Promise<RulesJson> => {
  const path = `/exec/rules?agent=${encodeURIComponent(agent)}`
  const answer = await api.json<unknown>({ method: 'GET', path, ...(signal && { signal }) })
  if (!isRules(answer)) throw new AppError('daemon_unreachable', 'the server is not x0xd: its answer has no rules')
  return answer
}

/** Checked here too, because the API may be any server, and tools are made of the rules. */
const isRules = (value: unknown): value is RulesJson =>
  isTable(value) &&
  problemOf(value, RULES) === null &&
  value['ok'] === (value['denial_reason'] === null) &&
  [value['agent_id'], value['machine_id']].every((id) => isHexId(String(id))) &&
  (value as unknown as RulesJson).rules.every(({ argv }) => typeof parseForeignArgv([...argv]) !== 'string')
