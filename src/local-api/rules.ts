import { AppError } from '../base/errors.ts'
import { parseToken } from '../protocol/argv-template.ts'
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
  return answer
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null
const isId = (value: unknown): boolean => typeof value === 'string' && isHexId(value)
const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0
const isTextOrNull = (value: unknown): boolean => value === null || typeof value === 'string'

const isRules = (value: unknown): value is RulesJson =>
  isObject(value) &&
  typeof value['ok'] === 'boolean' &&
  typeof value['request_id'] === 'string' &&
  isId(value['agent_id']) &&
  isId(value['machine_id']) &&
  isTextOrNull(value['denial_reason']) &&
  value['ok'] === (value['denial_reason'] === null) &&
  isCount(value['left_out']) &&
  Array.isArray(value['rules']) &&
  value['rules'].every(isRule)

/** A literal first, then literals and templates: an API may be anywhere, and tools are made of it. */
const isArgv = (value: unknown): boolean => {
  const tokens: unknown[] = Array.isArray(value) ? value.map((token) => (typeof token === 'string' ? parseToken(token) : '')) : []
  const [program] = tokens as { kind?: string }[]
  return program?.kind === 'literal' && tokens.every((token) => typeof token !== 'string')
}

const COUNTS = ['timeout_ms', 'max_stdout_bytes', 'max_stderr_bytes', 'max_stdin_bytes'] as const

const isRule = (value: unknown): value is ExecRule =>
  isObject(value) && isTextOrNull(value['description']) && isArgv(value['argv']) && COUNTS.every((name) => isCount(value[name]))
