import { NETWORK_METRICS } from '../../src/doors/rest/metrics.ts'
import { REQUESTER_COUNTERS } from '../../src/exec/counters.ts'
import { EXEC_COUNTERS } from '../../src/executor/exec-counters.ts'
import { EXEC_METRICS } from '../../src/executor/views.ts'
import type { JOURNAL_EVENTS, JournalEvent, LocalKey } from '../../src/journal/events.ts'
import type { ApprovalOutcome } from '../../src/journal/desk-events.ts'
import type { RunKey } from '../../src/journal/run-key.ts'
import { DM_COUNTERS } from '../../src/links/counters.ts'
import { LIFECYCLE_FIELDS, WATCHED_TYPES, lifecycleEvent, lifecycleText } from '../../src/protocol/events/lifecycle.ts'
import type { Section } from './fill.ts'
import { code, table } from './table.ts'

type EventName = (typeof JOURNAL_EVENTS)[number]
type LineOf<Name, Event = JournalEvent> = Event extends { readonly event: infer E } ? (Name extends E ? Event : never) : never
/** Fields of a line without those that identify its run or session. */
type OwnFields<Line> = Line extends RunKey
  ? Exclude<keyof Line, keyof RunKey>
  : Line extends LocalKey
    ? Exclude<keyof Line, keyof LocalKey | 'request_id'>
    : keyof Line
/** Explanations of fields whose name is not sufficient. Most are empty. */
type FieldsOf<Name> = Readonly<Record<Exclude<OwnFields<LineOf<Name>>, 'event'>, string>>

const OUTCOMES: Readonly<Record<ApprovalOutcome, string>> = {
  allowed: '',
  denied: '',
  timed_out: '',
  no_ui: 'no approval client',
  withdrawn: '',
  too_many: '`count` requests, without IDs',
  not_shown: 'could not be shown completely',
  desk_gone: 'the service died; nothing was allowed',
}

/** Journals whose table has the event. */
type Log = 'audit' | 'requests' | 'rexd' | 'approvals' | 'all'

const EVENTS: { readonly [Name in EventName]: readonly [log: Log, meaning: string, fields: FieldsOf<Name>] } = {
  request: [
    'audit',
    'Policy allowed the command. Nothing has started yet.',
    {
      argv: '',
      matched_acl: 'description of the entry',
      stdin_bytes: '',
      stdin_sha256: 'above 1 MiB: of the concatenated hashes of its MiB',
      timeout_ms: '',
      request_sha256: 'of the signed request',
      executable: '`path`, `dev`, `ino`',
      account: "user; null for the daemon's",
      approved_by: '',
      keep_bytes: 'detached runs',
      terminal: '`true`: on a terminal; else absent',
      recording: 'name of its recording; else absent',
      cwd: 'REXD only, as the next four',
      env: 'names only',
      target: 'agent; null for this machine',
      tool: 'MCP call: `operation`, `key_sha256`, `call_sha256`',
      ran_on: '`host`, `agent_id`, `name`',
    },
  ],
  started: ['audit', 'The process runs.', { pid: '', containment: '`cgroup`, `pid_namespace`, `group`' }],
  warning: [
    'audit',
    'A limit was approached or reached, or the run is being ended.',
    { kind: 'see [errors.md](errors.md)', bytes: '', processes: 'of `descendants_ended`' },
  ],
  exit: [
    'audit',
    'The run has ended.',
    {
      code: '',
      signal: '',
      duration_ms: '',
      stdout_bytes: 'with dropped bytes, as for stderr',
      stderr_bytes: '',
      stdout_sha256: 'of the bytes sent, as for stderr',
      stderr_sha256: '',
      truncated: '',
      recording: '`name`, `bytes`, `sha256`, `complete`; absent without a recording',
    },
  ],
  denial: [
    'audit',
    'The request was denied. After `started`: its limits could not be set, so the run was killed.',
    {
      argv: 'its first 256 bytes',
      argv_cut: 'of a longer one: `tokens`, `bytes`, `sha256`',
      reason: 'see [errors.md](errors.md)',
      detail: 'for the operator only',
    },
  ],
  lost: ['audit', 'The run was active when the daemon died. Written at the next start.', {}],
  attach: ['audit', 'The requester is about to receive output of a detached run.', { from: 'first byte' }],
  forget: ['audit', 'The output of a detached run is about to be removed.', { by: '`requester` or `time`' }],
  rules: ['audit', 'The requester is about to receive its permitted commands.', { listed: '', left_out: 'did not fit', detail: '' }],
  asked: [
    'requests',
    'A request is about to be sent. A resent one has a second line.',
    {
      argv: '',
      stdin_bytes: '',
      timeout_ms: '',
      fanout_id: 'of a fan-out',
      proven: 'true: proved with `operator.key`',
      detach: 'of a detached run: `lifetime_ms`, `keep_bytes`',
      terminal: '`true`: on a terminal; else absent',
    },
  ],
  detached_asked: [
    'requests',
    'This agent is about to query a detached run.',
    { ask: '`state`, `attach`, `cancel` or `forget`', from: '' },
  ],
  rules_asked: ['requests', 'This agent is about to ask for its permitted commands.', {}],
  session: ['rexd', 'A session was opened, or is being closed.', { state: '', roots: '', target: 'agent; null for this machine' }],
  file_read: [
    'rexd',
    'A file or directory is about to be read.',
    { method: '', path: '', pattern: 'of `fs.glob`', recursive: 'of `fs.list`', bytes: '' },
  ],
  file_write: [
    'rexd',
    'A file is about to be changed. If that fails, `refused` follows.',
    { method: '', path: '', pattern: '', recursive: '', bytes: 'size written' },
  ],
  refused: ['rexd', 'A call was refused, or a file operation failed.', { method: '', argv: '', argv_cut: '', code: '', detail: '' }],
  question: [
    'approvals',
    'An approval is requested. Nothing is decided yet.',
    {
      question_id: '',
      permit_sha256: 'identifies this command',
      door: 'interface',
      session: '',
      asker: 'agent or client label',
      engine: 'requesting program',
      argv: '',
      argv_cut: '',
      executable: '',
      cwd: '',
      env: 'names only',
      host: '',
      target: '',
      always_ask: '',
      why: '',
    },
  ],
  approval: [
    'approvals',
    'A decision, written before the requester receives it.',
    {
      question_id: '',
      permit_sha256: '',
      outcome: 'see below',
      by: 'approval client, grant, pattern, mode or fallback',
      reason: '',
      count: '',
    },
  ],
  store_changed: [
    'approvals',
    'The approval store or modes are about to change.',
    { change: 'such as `grant`, `revoke` or `modes`', by: '', agent: '', detail: '' },
  ],
  desk_refused: ['approvals', 'A message to the approval service was refused.', { code: '', role: 'null for none', name: '', detail: '' }],
  began: [
    'all',
    'First line: the program has started.',
    {
      version: '',
      policy_sha256: 'of the ACL or configuration',
      signer: '`agent_id`, `public_key`; null: nothing is signed',
      after: 'line before: `chain`, `n`, `sha256`',
    },
  ],
  head: ['all', 'All lines so far are signed.', { signer: '', signature: '' }],
  stopped: ['all', 'The same, and the program has stopped normally.', { signer: '', signature: '' }],
  authority: [
    'all',
    'Trust or keys are about to change, an operator ends a run, or the daemon drains before a restart. With `code`: the proof was invalid, and nothing changes.',
    {
      operation: 'such as `contact_trust`, `exec_cancel`, `exec_incoming_cancel`, `drain` or `drain_cancelled`',
      agent: '',
      machine: '',
      level: '',
      request_id: 'of the ended run',
      code: '',
      detail: '',
    },
  ],
  reload: [
    'all',
    'The ACL was reloaded (SIGHUP).',
    {
      outcome: 'see [acl.md](acl.md#reload)',
      file: '',
      sha256: '',
      detail: '',
    },
  ],
  http_refused: [
    'all',
    'An HTTP request had a wrong token, Host or Origin, or exceeded a rate limit.',
    { code: '', method: '', path: '', host: '', origin: '', remote: 'address; null on a unix socket', detail: '' },
  ],
  refusals_suppressed: [
    'all',
    'Refusals that were counted instead of written.',
    {
      count: '',
      sources: 'their number',
      named: 'the first 8; unlisted peers, as `stranger AGENT.MACHINE`, last',
      reasons: 'counts',
      from: '',
      to: '',
    },
  ],
}

const noted = ([name, note]: [string, string]): string => (note === '' ? code(name) : `${code(name)} (${note})`)

const fieldsText = (fields: Readonly<Record<string, string>>): string => Object.entries(fields).map(noted).join('; ') || '–'

const eventsOf = (log: Log): string =>
  table(
    ['Event', 'Meaning', 'Fields'],
    Object.entries(EVENTS)
      .filter(([, [of]]) => of === log)
      .map(([name, [, meaning, fields]]) => [code(name), meaning, fieldsText(fields)]),
  )

const counters = (counted: Readonly<Record<string, string>>): string =>
  table(
    ['Counter', 'Counts'],
    Object.entries(counted).map(([name, help]) => [code(name), help]),
  )

const COUNTER_METRICS = new Set(
  Object.entries({ x0x_exec: EXEC_COUNTERS, x0x_requester: REQUESTER_COUNTERS, x0x_dm: DM_COUNTERS }).flatMap(([prefix, counted]) =>
    Object.keys(counted).map((name) => `${prefix}_${name}_total`),
  ),
)

/** Metrics without a counter of the same name. Both processes have those of `x0x_process_`, which are listed once. */
const otherMetrics = (): string => {
  const all = new Map([...NETWORK_METRICS, ...EXEC_METRICS].map(({ name, type, help }) => [name, { name, type, help }]))
  const others = [...all.values()].filter(({ name }) => !COUNTER_METRICS.has(name))
  const histograms = others.filter(({ type }) => type === 'histogram').map(({ name }) => code(name))
  // The reader learns the type from the name, so a name must not mislead.
  const misnamed = others.filter(({ name, type }) => name.endsWith('_total') !== (type === 'counter'))
  if (misnamed.length > 0) throw new Error(`only counters end in _total: ${misnamed.map(({ name }) => name).join(', ')}`)
  return [
    `Counters end in \`_total\`. Histograms: ${histograms.join(', ')}. Others are gauges.`,
    table(
      ['Metric', 'Meaning'],
      others.map(({ name, help }) => [code(name), help]),
    ),
  ].join('\n\n')
}

const LIVE_EVENTS: Readonly<Record<(typeof WATCHED_TYPES)[number], string>> = {
  'exec.started': 'The program runs.',
  'exec.waiting': 'The run waits for approval. At most once, as its first event.',
  'exec.finished': 'The run has ended. Its last event.',
  'exec.denied': 'The command did not run. Its last event.',
  'exec.output': 'New output. Only for approval clients that show the run.',
}

const LIVE_FIELDS: Readonly<Record<keyof typeof LIFECYCLE_FIELDS, string>> = {
  type: 'See above.',
  n: 'Number, from 1.',
  ts: 'Time, ISO 8601.',
  owner: 'Requester: client label or agent ID.',
  session: 'Label of the run (`--session`), or session.',
  door: 'Interface: `rest` (API), `mesh` (run of another agent), or that of REXD.',
  run_id: 'Request ID.',
  node: 'Target: agent ID or name, `gateway` (this machine) or `sandbox`.',
  code: 'Exit status.',
  signal: 'Signal that ended the program.',
  duration_ms: 'Duration.',
  expires_in_ms: 'Longest time to wait for approval.',
  tail: 'End of both outputs. Untrusted text.',
  tail_truncated: '`tail` is not the whole output.',
  incomplete: 'The result is unknown or output is missing. Never a success.',
  denial_reason: 'Denial reason or error code ([errors.md](errors.md)).',
}

/** The text of an event without its parentheses, which the page describes once. */
const sampleOf = (type: (typeof WATCHED_TYPES)[number]): string =>
  lifecycleText(
    lifecycleEvent({ type, owner: '', session: null, door: 'rest', run_id: '', node: '', code: 0, denial_reason: '' }, { n: 1, ts: '' }),
  ).replace(/ \(.*/, '')

const liveEvents = (): string =>
  table(
    ['Type', 'Text', 'Meaning'],
    WATCHED_TYPES.map((type) => [code(type), code(sampleOf(type)), LIVE_EVENTS[type]]),
  )

const liveFields = (): string =>
  table(
    ['Field', 'Meaning'],
    Object.keys(LIFECYCLE_FIELDS).map((name) => [code(name), LIVE_FIELDS[name as keyof typeof LIFECYCLE_FIELDS]]),
  )

export const OBSERVABILITY: Readonly<Record<string, Section>> = {
  'audit-events': () => eventsOf('audit'),
  'request-log-events': () => eventsOf('requests'),
  'rexd-events': () => eventsOf('rexd'),
  'approval-events': () => `${eventsOf('approvals')}\n\nOutcomes: ${Object.entries(OUTCOMES).map(noted).join('; ')}.`,
  'common-events': () => eventsOf('all'),
  counters: () =>
    [
      `### Runs on this machine\n\n${counters(EXEC_COUNTERS)}`,
      `### Requested runs\n\n${counters(REQUESTER_COUNTERS)}`,
      `### Links and messages\n\n${counters(DM_COUNTERS)}`,
    ].join('\n\n'),
  metrics: otherMetrics,
  'live-events': liveEvents,
  'live-event-fields': liveFields,
}
