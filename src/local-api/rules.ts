import { AppError } from '../base/errors.ts'
import { parseForeignArgv } from '../protocol/argv-template.ts'
import {
  count,
  flag,
  isTable,
  isText,
  orMissing,
  orNull,
  problemOf,
  tableOf,
  text,
  texts,
  type FieldCheck,
} from '../protocol/field-checks.ts'
import { isHexId } from '../protocol/ids.ts'
import type { ExecRule } from '../protocol/exec.ts'
import type { RulesJson } from '../protocol/rules-json.ts'
import type { LocalApi } from './local-api.ts'

/**
 * Asks an agent, through the daemon, which commands we may run there. `agent`: as a person names it. Throws the daemon's
 * errors, and `daemon_unreachable` for an answer that no daemon gives.
 */
export const askRules = async (api: Pick<LocalApi, 'json'>, agent: string, signal?: AbortSignal): Promise<RulesJson> => {
  const path = `/exec/rules?agent=${encodeURIComponent(agent)}`
  const answer = await api.json<unknown>({ method: 'GET', path, ...(signal && { signal }) })
  if (!isRules(answer)) throw new AppError('daemon_unreachable', 'what answers is no daemon: its answer has no rules')
  // A daemon of the release before says nothing of runs that outlive their callers.
  return { ...answer, rules: answer.rules.map((rule) => ({ ...rule, detach: rule.detach ?? null })) }
}

const id: FieldCheck = { is: (value) => isText(value) && isHexId(value), what: 'an id' }
/** Read again: an API may be anywhere, and tools are made of it. */
const argv: FieldCheck = { is: (value) => texts.is(value) && typeof parseForeignArgv(value as string[]) !== 'string', what: 'a command' }

const RULE = {
  description: orNull(text),
  argv,
  timeout_ms: count,
  max_stdout_bytes: count,
  max_stderr_bytes: count,
  max_stdin_bytes: count,
  detach: orMissing(orNull(tableOf({ lifetime_ms: count, keep_bytes: count }))),
} satisfies Record<keyof ExecRule, FieldCheck>

const isRule = (value: unknown): boolean => isTable(value) && problemOf(value, RULE) === null

const ANSWER = {
  ok: flag,
  request_id: text,
  agent_id: id,
  machine_id: id,
  denial_reason: orNull(text),
  rules: { is: (value) => Array.isArray(value) && value.every(isRule), what: 'a list of rules' },
  left_out: count,
} satisfies Record<keyof RulesJson, FieldCheck>

const isRules = (value: unknown): value is RulesJson =>
  isTable(value) && problemOf(value, ANSWER) === null && value['ok'] === (value['denial_reason'] === null)
