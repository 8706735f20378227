import * as z from 'zod'

import type { RestServices, RestInit } from '../../src/doors/rest/services.ts'
import { routeDefinitions } from '../../src/doors/rest/app.ts'
import type { Definition } from '../../src/doors/rest/definition.ts'
import { ROUTES, type Route, type RouteCategory, type RouteKey } from '../../src/doors/rest/routes.ts'
import { type FanoutRequest, type RunRequest, fanoutRequest, runRequest } from '../../src/doors/rest/schemas.ts'
import type { SHOWN_RUN } from '../../src/protocol/api/detached-run.ts'
import type { RUN_RESULT } from '../../src/protocol/api/run-events.ts'
import type { Section } from './fill.ts'
import { code, table } from './table.ts'

/** Services that are never called, because a definition uses them only when it answers a request. */
const NONE = { clock: { monotonic: () => 0 } } as unknown as RestServices
const NEVER = { signal: new AbortController().signal }
const DEFINITIONS = routeDefinitions(NONE, {} as RestInit, NEVER)

type Json = z.core.JSONSchema.BaseSchema

/** Remarks that the fields of a route do not show. */
const NOTES: Partial<Readonly<Record<RouteKey, string>>> = {
  'GET /health': '503 if the executor process does not answer, the mesh does not listen, or the audit log cannot be written.',
  'GET /agent/card': 'The card is valid for a year. `conflict` if this agent is revoked.',
  'POST /agent/card/import':
    'A contact that exists keeps its trust level and pins. Another `trust_level`, or a second name without `rename`, is a `conflict`.',
  'POST /agent/revoke': '`machine_id` null revokes the key itself.',
  'POST /keys/rotate-token':
    '`token` is `api_token`, `metrics_token` or `operator_key`. The old token is `unauthorized` at once, and event streams opened with it end. Runs continue. `conflict` without a metrics token.',
  'POST /acl/sign': 'The audit log has version and hash first. `conflict` if this agent is revoked.',
  'GET /contacts': 'You can block or remove a revoked contact. Import, trust and pin are a `conflict`.',
  'POST /contacts/meet': '`conflict` for a blocked or revoked agent.',
  'POST /contacts/trust': '`level` is `blocked`, `unknown`, `known` or `trusted`.',
  'POST /contacts/unpin': 'A contact without pins is at most `known`.',
  'POST /contacts/label': 'A label with null is removed.',
  'GET /contacts/select':
    '`expr` once for each [host word](fleets.md#choose-the-hosts). Errors: `bad_request`, `unknown_agent`, `ambiguous_agent`, `no_hosts`.',
  'GET /trust/evaluate': 'No other agent is asked. `contact` can be null.',
  'GET /peers': '`linked`: both agents are authenticated.',
  'POST /agents/ping': '`peer_rejected` if the agent does not accept this agent on this machine.',
  'POST /direct/send': 'Payload at most 48 KiB, else `too_large`. `outcome`: `delivered`, `no_listener` or `rejected`.',
  'GET /direct/events': 'A client that is 1,024 messages behind gets `{"type": "lagged"}` and the stream ends.',
  'POST /exec/cancel': 'Give exactly one ID. The waiting request still gets its result.',
  'GET /exec/rules': 'See [Ask what you may run](#ask-what-you-may-run).',
  'GET /exec/output': 'At most 20,000 characters. Treat them as untrusted.',
  'GET /exec/sessions': '`state`: `connecting`, `requested`, `waiting_for_approval`, `running` or `cancelling`.',
  'POST /exec/incoming': '`argv` above 256 bytes is cut, and `argv_cut` has its size.',
  'POST /exec/incoming/cancel': 'The requester gets `ended_by_operator`. `conflict` if two agents use this ID and `agent_id` is absent.',
  'GET /exec/events': 'See [Follow run events](#follow-run-events).',
  'GET /agents/{agent}/files':
    'At most one of `stat`, `list`, `digest` and `upload`. Without them: the bytes, with `Content-Length`, `ETag` (the version), `Last-Modified`, `X0X-File-Mode` and `X0X-File-Mtime-Ms`. `Range: bytes=N-` and `bytes=N-M` with `If-Match` return a part (206). The last bytes of a whole file come when its SHA-256 matches. If the copy fails after the head, the connection ends early. While a request for a file waits for an approval, interim answers (103) have its state as JSON in `X0X-Waiting`.',
  'PUT /agents/{agent}/files':
    'The body has the bytes, of any length and type. The file gets its name when all have arrived. To resume, ask for `upload`, and send the rest with `offset` and `sha256`.',
  'POST /agents/{agent}/files/directory': 'Directories above it are created too. An existing directory is not an error.',
  'GET /runs': 'Oldest first. See [Detached runs](#detached-runs).',
  'GET /runs/{request_id}/output': 'See [Detached runs](#detached-runs).',
  'POST /runs/wait': '`outcome` is null if the end was not seen just now. A run forgotten meanwhile has `problem` `unknown_run`.',
  'POST /runs/cancel': 'Returns before the end. `POST /runs/wait` reports it.',
  'POST /runs/forget': '`conflict` while it runs, or if the target cannot delete the output.',
  'GET /diagnostics/exec': '[observability.md](observability.md) explains the counters.',
  'GET /metrics': 'The [metrics token](monitor.md) is sufficient.',
}

/** Texts in place of the fields of an answer. */
const ANSWERS: Partial<Readonly<Record<RouteKey, string>>> = {
  'GET /openapi.json': 'the document',
  'POST /exec/run': 'a result or a stream',
  'POST /exec/terminal': 'a stream',
  'POST /exec/cancel': 'the same ID',
  'POST /exec/fanout': 'a stream, or the ledger with `hosts`',
  'GET /agents/{agent}/files': 'the bytes, a status, `entries` and `left_out`, a digest, or `received`',
  'GET /runs': '`runs`',
  'GET /runs/{request_id}': 'a detached run',
  'GET /runs/{request_id}/output': 'a stream, or one object',
  'POST /runs/wait': '`runs`, each with `over` and `outcome`',
  'POST /runs/cancel': 'a detached run',
  'POST /runs/forget': 'a detached run',
  'GET /direct/events': 'a stream',
  'GET /metrics': 'text',
  'GET /diagnostics/dm': 'counters, `links`',
}

const jsonOf = (schema: z.ZodType, io: 'input' | 'output'): Json => z.toJSONSchema(schema, { io, unrepresentable: 'any' })

const isOptional = (schema: Json, name: string): boolean => !(schema.required ?? []).includes(name)

const named = (schema: Json, name: string): string => code(isOptional(schema, name) ? `${name}?` : name)

const requestFields = (schema: z.ZodType | undefined): string[] => {
  if (schema === undefined) return []
  const json = jsonOf(schema, 'input')
  return Object.keys(json.properties ?? {}).map((name) => named(json, name))
}

/** Routes whose request fields have a separate table, below this heading. */
const OWN_TABLES: Readonly<Partial<Record<string, string>>> = {
  'POST /exec/run': 'run-a-command',
  'POST /exec/terminal': 'run-on-a-terminal',
  'POST /exec/fanout': 'run-on-many-agents',
}

const requestOf = (key: string, { body, query, proof }: Definition): string => {
  const ownTable = OWN_TABLES[key]
  const fields = ownTable !== undefined ? [`[fields](#${ownTable})`] : [...requestFields(body), ...requestFields(query)]
  return [...(proof === undefined ? [] : [proof === 'needed' ? 'proof' : 'proof accepted']), ...fields].join(', ')
}

/** The object of a schema, also behind a reference. */
const objectOf = (schema: Json, root: Json): Json | null => {
  const target = schema.$ref === undefined ? schema : root.$defs?.[schema.$ref.replace('#/$defs/', '')]
  return target?.properties === undefined ? null : target
}

const shownBefore = new Set<string>()

/** The object that a field has, perhaps in a list or beside null. */
const innerObject = (schema: Json, root: Json): Json | null => {
  const { items, anyOf = [] } = schema
  const inner = items === undefined ? anyOf.find((one) => one.type !== 'null') : items
  return objectOf((inner ?? schema) as Json, root)
}

/** A field of an answer; an object with its fields where they come first. */
const answerField = (name: string, schema: Json, root: Json): string => {
  const inner = innerObject(schema, root)
  const fields = inner === null ? '' : Object.keys(inner.properties!).map(code).join(' ')
  if (fields === '' || shownBefore.has(fields)) return code(name)
  shownBefore.add(fields)
  return `${code(name)} (${fields})`
}

const answerOf = (key: RouteKey, { response }: Definition): string => {
  const stated = ANSWERS[key]
  if (stated !== undefined || response === undefined) return stated ?? ''
  const root = jsonOf(response, 'output')
  const object = objectOf(root, root)
  const fields = Object.entries(object?.properties ?? {}).filter(([name]) => name !== 'ok')
  return fields.map(([name, schema]) => (key.includes('/diagnostics/') ? code(name) : answerField(name, schema as Json, root))).join(', ')
}

const TITLES: Readonly<Record<RouteCategory, string>> = {
  status: 'Status',
  identity: 'Identity',
  contacts: 'Contacts and trust',
  mesh: 'Mesh',
  direct: 'Direct messages',
  exec: 'Runs',
  files: 'Files on an agent',
  runs: 'Detached runs and their output',
  diagnostics: 'Diagnostics',
}

const row = (route: Route): string[] => {
  const key = `${route.method} ${route.path}` as RouteKey
  const definition = DEFINITIONS[key]
  const does = [`${route.description}.`, route.cli === null ? '' : `(${route.cli.split(', ').map(code).join(', ')})`, NOTES[key] ?? '']
  return [code(key), does.filter((text) => text !== '').join(' '), requestOf(key, definition), answerOf(key, definition)]
}

const routes = (): string => {
  shownBefore.clear()
  const byCategory = Map.groupBy(ROUTES, ({ category }) => category)
  return [...byCategory]
    .map(([category, list]) => `### ${TITLES[category]}\n\n${table(['route', 'purpose (command)', 'request', 'answer'], list.map(row))}`)
    .join('\n\n')
}

type KeysOf<T> = Readonly<Record<keyof T & string, string>>

/** A row for each field of a request. */
const requestTable = (schema: z.ZodType, texts: Readonly<Record<string, string>>): string => {
  const root = jsonOf(schema, 'input')
  const json = objectOf(root, root) ?? root
  return table(
    ['field', 'meaning'],
    Object.entries(texts).map(([name, text]) => [named(json, name), text]),
  )
}

const RUN: KeysOf<RunRequest> = {
  agent_id: 'ID of the target. Give this or `agent`. The own agent runs the command on this machine, with the same checks.',
  agent: 'Name or ID prefix of the target.',
  argv: 'Program and arguments, one token each, without a shell.',
  stdin_b64: 'Stdin. Default: `/dev/null`.',
  stdin_len: 'Streamed body only: total bytes of stdin.',
  stdin_sha256: 'Streamed body only: list of the SHA-256 of each MiB of stdin, in hex.',
  timeout_ms: 'Default: the limit of the target.',
  cwd: 'Always denied (`cwd_not_allowed`).',
  clamp: 'true: a timeout above the limit becomes the limit, with the warning `timeout_clamped`, instead of a denial.',
  request_id: 'Your UUID for this run. Default: a new one. See [Repeat a request](#repeat-a-request).',
  session: 'Run label: 1 to 64 letters, digits, `_`, `.`, `:` or `-`. The target does not learn it.',
  detach: 'true, or `{lifetime_ms?, keep_bytes?}`: a [detached run](#detached-runs).',
}

const FANOUT: KeysOf<Omit<FanoutRequest, 'argv' | 'stdin_b64' | 'timeout_ms' | 'clamp' | 'cwd' | 'session'>> = {
  hosts: 'List of [host words](fleets.md#choose-the-hosts). Each agent is asked once.',
  parallel: 'Hosts at once, 1 to 512. Default: 64.',
  canary: 'This many first hosts must all end with code 0 before the others start.',
  max_failures: 'Number (`3`) or percentage (`"5%"`, at least one host). After that many hosts without code 0, no more start.',
  deadline_ms: 'Time for all hosts. Then no more start, and running commands are cancelled.',
  fanout_id: 'Your UUID. Default: a new one.',
  request_ids: '`{agent_id: request_id}`: your IDs for some hosts.',
}

const RESULT: KeysOf<typeof RUN_RESULT> = {
  ok: 'The run ended, the signed end of the target was verified, and every forwarded byte arrived. `code` can still be other than 0.',
  request_id: 'ID of the run.',
  agent_id: 'Target.',
  machine_id: 'Machine of the target.',
  code: 'Exit code. Null if a signal ended it, it never ran, or the end is unknown.',
  signal: 'Signal number, or null.',
  duration_ms: 'Duration on the target.',
  stdout_bytes_total: 'Bytes that the command wrote, including dropped ones.',
  stderr_bytes_total: 'The same for stderr.',
  truncated: 'A limit dropped output.',
  incomplete: 'The result is unknown, or bytes are missing or altered. The command may or may not have run. Never a success.',
  denial_reason: 'Why the target refused ([errors.md](errors.md)), or null. A denial has status 200 and `ok` false.',
  warnings: 'Kinds of [warnings](errors.md#warnings).',
  waited_ms: 'Only after an approval: how long the run waited.',
  never_arrived: 'true only with `incomplete`: the request did not reach the target, so nothing ran.',
  message: 'Only with `incomplete`: the reason.',
  stdout_b64: 'Output. One answer has at most 64 MiB; stream to get more.',
  stderr_b64: 'Error output.',
  next: 'Only after a denial: commands that help, one per line.',
}

const DETACHED: KeysOf<typeof SHOWN_RUN> = {
  request_id: 'ID of the run.',
  agent_id: 'Target.',
  machine_id: 'Its machine.',
  agent: 'Name of the contact, or null.',
  argv: 'Command; above 256 bytes only its beginning.',
  argv_cut: 'Only if `argv` is cut: `tokens`, `bytes` and `sha256` of the whole.',
  asked_at: 'Time of the request.',
  lifetime_ms: 'Requested lifetime, or null for the default of the target.',
  keep_bytes: 'Requested output storage, or null.',
  session: 'Run label, or null.',
  state: '`unknown`, `waiting`, `running`, `ended`, `lost` or `expired` ([meaning](detached-runs.md)).',
  code: 'Exit code, or null.',
  signal: 'Signal number, or null.',
  denial_reason: 'Why it did not run, or null.',
  heard_at: 'When this daemon learned `state`, or null.',
  kept: '`bytes_kept`, `bytes_dropped`, `keep_bytes`, `lifetime_left_ms`, `kept_for_ms`: state on the target now. Null if it was not asked or did not answer.',
  problem: '`error`, `message`, `next?`: why the target did not answer, or null.',
}

const fieldTable = (texts: Readonly<Record<string, string>>): string =>
  table(
    ['field', 'meaning'],
    Object.entries(texts).map(([name, text]) => [code(name), text]),
  )

/** Sections of docs/rest.md. */
export const REST: Readonly<Record<string, Section>> = {
  'rest-routes': routes,
  'rest-run-request': () => requestTable(runRequest, RUN),
  'rest-fanout-request': () => requestTable(fanoutRequest, FANOUT),
  'rest-run-result': () => fieldTable(RESULT),
  'rest-detached-run': () => fieldTable(DETACHED),
}
