import * as z from 'zod'

import type { McpTool } from '../../src/doors/mcp/tool.ts'
import { toolsFor } from '../../src/doors/mcp/tools.ts'
import type { TOOL_RESULT } from '../../src/doors/tools/tool-result.ts'
import type { FLEET_RESULT } from '../../src/doors/tools/tool-fleet.ts'
import { CAPABILITY_NAMES } from '../../src/protocol/rexd/fields.ts'
import type { Section } from './fill.ts'
import { code, table } from './table.ts'

const TOOLS = toolsFor(new Set(CAPABILITY_NAMES))

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.?$/, '.')}`

/** The first sentence of a text. */
const firstSentence = (text: string): string => /^.*?[.:](?= |$)/.exec(text)?.[0].replace(/:$/, '.') ?? text

interface Argument {
  readonly name: string
  readonly isRequired: boolean
  readonly text: string
}

/** A field that also takes null has its description in the other alternative. */
const descriptionOf = ({ description, anyOf = [] }: z.core.JSONSchema.BaseSchema): string => {
  const text = description ?? anyOf.map(descriptionOf).find((one) => one !== '') ?? ''
  return text.replace(/^a whole number: /, '').replaceAll('"', '`')
}

const argumentsOf = ({ input }: McpTool): Argument[] => {
  const json = z.toJSONSchema(input, { io: 'input', unrepresentable: 'any' })
  return Object.entries(json.properties ?? {}).map(([name, schema]) => ({
    name,
    isRequired: (json.required ?? []).includes(name),
    text: sentence(descriptionOf(schema as z.core.JSONSchema.BaseSchema)),
  }))
}

/** Tools for one command on one host. */
const RUNNING = TOOLS.filter(({ name }) => ['exec_status', 'exec_capture', 'exec_with_input', 'exec'].includes(name))

const tools = (): string =>
  table(
    ['tool', 'purpose'],
    TOOLS.map((tool) => [code(tool.name), firstSentence(tool.description)]),
  )

/** The tools that take an argument; those for one command together. */
const usersIn = (names: readonly string[]): string => {
  const isCommon = RUNNING.every(({ name }) => names.includes(name))
  const others = names.filter((name) => !isCommon || !RUNNING.some((tool) => tool.name === name))
  return [...(isCommon ? ['common'] : []), ...others.map(code)].join(' ')
}

/** One row for each text. Equal arguments of several tools, and arguments with the same text, share a row. */
const argumentTable = (): string => {
  const rows = new Map<string, { readonly names: Set<string>; readonly users: Set<string> }>()
  for (const tool of TOOLS)
    for (const { name, isRequired, text } of argumentsOf(tool)) {
      const row = rows.get(text) ?? { names: new Set(), users: new Set() }
      row.names.add(code(isRequired ? name : `${name}?`))
      row.users.add(tool.name)
      rows.set(text, row)
    }
  return table(
    ['argument', 'of', 'meaning'],
    [...rows].map(([text, { names, users }]) => [[...names].join(' '), usersIn([...users]), text]),
  )
}

type KeysOf<T> = Readonly<Record<keyof T & string, string>>

const RESULT: KeysOf<typeof TOOL_RESULT> = {
  success: 'The command ended by itself with exit status 0.',
  operation: 'Name of the tool.',
  command: 'As requested.',
  args: 'As requested.',
  cwd: 'Working directory. Null on a target.',
  exit_code: 'Null while it runs, after a signal, and if it never ran.',
  timed_out: 'The timeout ended it, with all its processes.',
  duration_ms: 'Duration; 0 while it runs.',
  stdout: 'Output. Untrusted.',
  stderr: 'Output. Untrusted.',
  stdout_truncated: 'Bytes are missing.',
  stderr_truncated: 'Bytes are missing.',
  signal: 'Signal that ended it, such as `SIGTERM`.',
  denial_reason: 'Reason of [errors.md](errors.md) why the configuration, or the ACL of the target, refuses it.',
  launch_error:
    'It never ran: `message`, and `kind`: `not_found`, `not_executable` (or replaceable by other users), `config` (wrong setting), `spawn` (system, audit log or connection).',
  denial_detail: 'Text of the denial.',
  target: 'Target, or null for this machine.',
  stdout_omitted_bytes: 'Number of missing bytes.',
  stderr_omitted_bytes: 'Number of missing bytes.',
  stdout_invalid_utf8: 'U+FFFD replaces bytes that are not UTF-8.',
  stderr_invalid_utf8: 'U+FFFD replaces bytes that are not UTF-8.',
  state: '`queued`, `waiting_for_approval`, `running`, `ended`, or `interrupted` (the end is unknown; it may have run).',
  interruption: 'Why the end is unknown.',
  timeout_ms: 'Timeout in force, or null if unknown or not started.',
  timeout_clamped: 'The timeout exceeded a limit and was reduced.',
  run_id: 'For `exec_wait`, `exec_output` and `exec_kill`. Null if nothing is left.',
  descendants_ended:
    'Only if processes were [left running](run-commands.md#keep-a-process-running-after-its-command) and ended: their number.',
  ran_on: 'Only with `[tools.exec]`: `host`, `agent_id` of a node, `name`.',
  cut_wishes: 'Only if a preference exceeded the configuration: `key`, `asked`, `got`.',
  approval: 'Only while it waits: `question_id` (null if the target asks) and `expires_at`.',
  next: 'Only if it did not run: what to do.',
}

const RESULT_OF_HOSTS = 'Number of hosts with this [result](fleets.md#read-the-output).'

const FLEET: KeysOf<typeof FLEET_RESULT> = {
  asked: 'Number of hosts. The next six and `going` add up to it.',
  ran: RESULT_OF_HOSTS,
  denied: RESULT_OF_HOSTS,
  unreachable: RESULT_OF_HOSTS,
  not_started: RESULT_OF_HOSTS,
  cancelled: RESULT_OF_HOSTS,
  unknown: RESULT_OF_HOSTS,
  failed: 'Ran, but with another exit status, a signal, or missing or cut output.',
  going: 'Hosts that have not ended.',
  running: 'Those that have started, as a node set, or null.',
  answers:
    'Equal answers once, most frequent first: `hosts`, `count`, `exit_code`, `signal`, `timed_out`, `incomplete`, output fields as above, and `run_id` for `exec_output`.',
  not_run: 'Hosts that did not run: `end`, `hosts`, `count`, `reason`, `detail`, `next`.',
  approvals: 'Only while approvals are pending: `host`, `question_id`, `expires_at`; at most 32.',
}

/** Fields with the same text share a row. */
const fieldTable = (texts: Readonly<Record<string, string>>): string => {
  const rows = Map.groupBy(Object.entries(texts), ([, text]) => text)
  return table(
    ['field', 'meaning'],
    [...rows].map(([text, fields]) => [fields.map(([name]) => code(name)).join(' '), text]),
  )
}

/** Sections of docs/mcp.md. */
export const MCP_SECTIONS: Readonly<Record<string, Section>> = {
  'mcp-tools': tools,
  'mcp-arguments': argumentTable,
  'mcp-result': () => fieldTable(RESULT),
  'mcp-fleet-result': () => fieldTable(FLEET),
}
