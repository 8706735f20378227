import type { AskedRun } from '../../protocol/asked-run.ts'
import { MAX_ASKED_REQUESTS, MAX_ASKED_RUNS } from '../../protocol/asked-limits.ts'
import { isHexId, isRequestId } from '../../protocol/ids.ts'
import { MAX_EXIT_STATUS, MAX_SIGNAL } from '../../protocol/limits.ts'
import { DENIAL_REASONS, DETACHED_STATES, type DenialReason } from '../../protocol/reasons.ts'
import { fileOf, listOf, objectOf, refuse, textOf, within, type Place } from '../../trust/json-file.ts'

const FILE_VERSION = 1

const KEYS = [
  'request_id',
  'agent_id',
  'machine_id',
  'argv',
  'argv_cut',
  'asked_at_ms',
  'lifetime_ms',
  'keep_bytes',
  'session',
  'state',
  'code',
  'signal',
  'denial_reason',
  'heard_at_ms',
  'digest',
  'requests',
] as const

const idOf = (value: unknown, place: Place): string =>
  typeof value === 'string' && isHexId(value) ? value : refuse(place, 'expected 64 lower-case hex digits')

const countOf =
  (max: number = Number.MAX_SAFE_INTEGER) =>
  (value: unknown, place: Place): number =>
    typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 && value <= max
      ? value
      : refuse(place, `expected a number from 0 to ${max}`)

const nullOr = <T>(value: unknown, place: Place, field: (value: unknown, place: Place) => T): T | null =>
  value === null ? null : field(value, place)

const cutOf = (value: unknown, place: Place): AskedRun['argv_cut'] => {
  const { tokens, bytes, sha256 } = objectOf(value, ['tokens', 'bytes', 'sha256'], place)
  return {
    tokens: countOf()(tokens, within(place, 'tokens')),
    bytes: countOf()(bytes, within(place, 'bytes')),
    sha256: idOf(sha256, within(place, 'sha256')),
  }
}

/** One that we do not know: this file is of a later release. */
const reasonOf = (value: unknown, place: Place): DenialReason =>
  DENIAL_REASONS.find((reason) => reason === value) ?? refuse(place, 'expected a reason of a denial')

const requestsOf = (value: unknown, place: Place): string[] => {
  const requests = listOf(value, place, idOf)
  return requests.length >= 1 && requests.length <= MAX_ASKED_REQUESTS ? requests : refuse(place, `expected 1 to ${MAX_ASKED_REQUESTS}`)
}

const runOf = (value: unknown, place: Place): AskedRun => {
  const row = objectOf(value, KEYS, place)
  const at = (key: (typeof KEYS)[number]): Place => within(place, key)
  const requestId = textOf(row.request_id, at('request_id'))
  return {
    request_id: isRequestId(requestId) ? requestId : refuse(at('request_id'), 'expected a UUID'),
    agent_id: idOf(row.agent_id, at('agent_id')),
    machine_id: idOf(row.machine_id, at('machine_id')),
    argv: listOf(row.argv, at('argv'), textOf),
    argv_cut: nullOr(row.argv_cut, at('argv_cut'), cutOf),
    asked_at_ms: countOf()(row.asked_at_ms, at('asked_at_ms')),
    lifetime_ms: nullOr(row.lifetime_ms, at('lifetime_ms'), countOf()),
    keep_bytes: nullOr(row.keep_bytes, at('keep_bytes'), countOf()),
    session: nullOr(row.session, at('session'), textOf),
    state: DETACHED_STATES.find((state) => state === row.state) ?? refuse(at('state'), `expected one of ${DETACHED_STATES.join(', ')}`),
    code: nullOr(row.code, at('code'), countOf(MAX_EXIT_STATUS)),
    signal: nullOr(row.signal, at('signal'), countOf(MAX_SIGNAL)),
    denial_reason: nullOr(row.denial_reason, at('denial_reason'), reasonOf),
    heard_at_ms: nullOr(row.heard_at_ms, at('heard_at_ms'), countOf()),
    digest: idOf(row.digest, at('digest')),
    requests: requestsOf(row.requests, at('requests')),
  }
}

/** The runs of a parsed file, the oldest first. Throws `bad_runs` naming file and place. */
export const askedRunsOf = (value: unknown, file: string): AskedRun[] => {
  const place: Place = { file, code: 'bad_runs', path: '' }
  const root = fileOf(value, FILE_VERSION, ['runs'], place)
  const list = within(place, 'runs')
  const runs = listOf(root.runs, list, runOf)
  if (runs.length > MAX_ASKED_RUNS) refuse(list, `at most ${MAX_ASKED_RUNS}`)
  const seen = new Set<string>()
  runs.forEach(({ request_id }, index) => {
    if (seen.has(request_id)) refuse(within(within(list, index), 'request_id'), 'appears twice')
    seen.add(request_id)
  })
  return runs
}

/** The contents of the file. */
export const askedRunsFile = (runs: readonly AskedRun[]): unknown => ({ version: FILE_VERSION, runs })
