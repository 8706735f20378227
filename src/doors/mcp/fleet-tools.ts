import * as z from 'zod'
import { AppError } from '../../base/errors.ts'
import type { MatchedTarget } from '../../executor-api/local.ts'
import { preferenceOf } from '../../protocol/api/exec-target.ts'
import { failuresAllowed } from '../../protocol/api/fanout.ts'
import { commandSize } from '../../protocol/api/rules.ts'
import { count, flag, number, oneOf, text, texts } from '../../protocol/json-table.ts'
import { MAX_COMMAND_JSON } from '../../protocol/limits/daemon.ts'
import {
  DEFAULT_FLEET_PARALLEL,
  DEFAULT_FLEET_STDERR,
  DEFAULT_FLEET_STDOUT,
  DEFAULT_FLEET_TOTAL,
  FLEET_SPARE_SESSIONS,
  MAX_FLEET_HOSTS,
  MAX_FLEET_PARALLEL,
  MAX_FLEET_STDIN,
  MAX_FLEET_TOTAL,
  MAX_FLEET_VIEW,
  MAX_HOST_TERMS,
  MAX_FLEET_WORD_BYTES,
} from '../../protocol/limits/fleet.ts'
import { MAX_TOOL_SECONDS } from '../../protocol/limits/tools.ts'
import { FLEET_RESULT, type ToolFleetRequest, type ToolFleet } from '../tools/tool-fleet.ts'
import { zodOf } from '../zod-of.ts'
import { ANSWER_FIELD, EXEC_FIELDS, MODE_FIELDS, STDIN_FIELD } from './exec-fields.ts'
import { type DeferredAnswer, type McpTool, type ToolCall, type ToolContext, tool } from './tool.ts'
import { inTime, waitForAny } from './wait-for.ts'

const whole = (min: number, max: number, text: string) => z.int().min(min).max(max).describe(`a whole number: ${text}`)

const INPUT = z.strictObject({
  hosts: z
    .array(z.string().min(1).max(MAX_FLEET_WORD_BYTES))
    .min(1)
    .max(MAX_HOST_TERMS)
    .describe(
      `a list of host words: names, IDs, node sets such as web[1-20], @group, key=value; ! before a word excludes it. At most ${MAX_FLEET_HOSTS} hosts`,
    ),
  command: EXEC_FIELDS.command,
  args: EXEC_FIELDS.args,
  stdin: STDIN_FIELD.max(MAX_FLEET_STDIN).optional().describe('the whole standard input of the program, on each host'),
  timeout_seconds: EXEC_FIELDS.timeout_seconds,
  deadline_seconds: whole(1, MAX_TOOL_SECONDS, 'seconds for all hosts; then running commands are ended and no more start').optional(),
  parallel: whole(1, MAX_FLEET_PARALLEL, `hosts at once (default ${DEFAULT_FLEET_PARALLEL}); the server may use fewer`).default(
    DEFAULT_FLEET_PARALLEL,
  ),
  canary: whole(0, MAX_FLEET_HOSTS, 'number of first hosts that must all succeed before the others start (default 0)').default(0),
  max_failures: z
    .union([z.int().min(1), z.string().max(4)])
    .describe('a whole number from 1, or a text such as "10%"; no more hosts start after that many failures')
    .optional(),
  max_stdout_bytes: whole(0, MAX_FLEET_VIEW, `maximum bytes of stdout of each answer (default ${DEFAULT_FLEET_STDOUT})`).default(
    DEFAULT_FLEET_STDOUT,
  ),
  max_stderr_bytes: whole(0, MAX_FLEET_VIEW, `maximum bytes of stderr of each answer (default ${DEFAULT_FLEET_STDERR})`).default(
    DEFAULT_FLEET_STDERR,
  ),
  max_total_bytes: whole(0, MAX_FLEET_TOTAL, `maximum bytes of all answers together (default ${DEFAULT_FLEET_TOTAL})`).default(
    DEFAULT_FLEET_TOTAL,
  ),
  idempotency_key: EXEC_FIELDS.idempotency_key,
  ...ANSWER_FIELD,
  security: MODE_FIELDS.security,
  ask: MODE_FIELDS.ask,
})

const OUTPUT = zodOf({
  success: flag.says('the command ran on every host and ended with exit status 0'),
  operation: text,
  command: text,
  args: texts,
  hosts: texts.says('the requested host words'),
  state: oneOf(['running', 'ended']),
  fleet_id: text.says('ID for exec_fleet_wait'),
  duration_ms: number,
  parallel: count.says('maximum number of hosts at once'),
  ...FLEET_RESULT,
})

/** Throws `bad_request` for what the schema cannot express. */
const requestOf = (input: z.output<typeof INPUT>): ToolFleetRequest => {
  const { hosts, command, args, stdin = '', canary, parallel, max_failures = null, deadline_seconds } = input
  const words = hosts.reduce((sum, word) => sum + Buffer.byteLength(word), 0)
  if (words > MAX_FLEET_WORD_BYTES)
    throw new AppError(
      'bad_request',
      `hosts: ${words} bytes; the maximum is ${MAX_FLEET_WORD_BYTES}; use a node set, a group or a label to shorten it`,
    )
  const bytes = commandSize([command, ...args], [])
  if (bytes > MAX_COMMAND_JSON)
    throw new AppError('bad_request', `args: ${bytes} bytes as JSON, including the command; the maximum is ${MAX_COMMAND_JSON}`)
  // The number of hosts is not known yet, but the syntax can be checked.
  if (max_failures !== null) failuresAllowed(max_failures, 1)
  const wish = preferenceOf(input)
  const asked = { operation: 'exec_fleet', command, args, cwd: null, target: null, env: {}, stdin: Buffer.from(stdin) }
  return {
    command: { ...asked, timeout_ms: input.timeout_seconds * 1_000, ...(wish && { wish }) },
    words: hosts,
    plan: { parallel, canary, maxFailures: max_failures, deadlineMs: deadline_seconds === undefined ? null : deadline_seconds * 1_000 },
    view: { stdout: input.max_stdout_bytes, stderr: input.max_stderr_bytes },
    total: input.max_total_bytes,
  }
}

const resultOf = (fleet: ToolFleet): DeferredAnswer => {
  return () => {
    const { command, words } = fleet.request
    const known = fleet.result()
    const { asked, ran, failed, answers, not_run } = known
    const result = {
      success: fleet.over && ran === asked && failed === 0,
      operation: command.operation,
      command: command.command,
      args: command.args,
      hosts: words,
      state: fleet.over ? 'ended' : 'running',
      fleet_id: fleet.id,
      duration_ms: fleet.duration,
      parallel: fleet.parallel,
      ...known,
    }
    const said = not_run.flatMap(({ reason, detail, next }) => [reason ?? '', detail ?? '', next ?? ''])
    const foreign = [...answers.flatMap(({ stdout, stderr }) => [stdout, stderr]), ...said]
    return { result, isError: fleet.over && ran < asked, foreign }
  }
}

/** Maximum number of concurrent hosts: the allowed sessions minus those reserved for other calls. */
const placesIn = async ({ sessions }: ToolContext): Promise<number> =>
  sessions.use(null, async ({ grant }) => grant.limits.max_concurrent_sessions - FLEET_SPARE_SESSIONS)

/** The hosts that the terms select. Throws `timeout` if the daemon does not answer in time. */
const meant = async (words: readonly string[], context: ToolContext, call: ToolCall): Promise<readonly MatchedTarget[]> => {
  const hosts = await inTime(async (signal) => context.executor.select(words, signal), context, call)
  if (hosts !== null) return hosts
  throw new AppError(
    'timeout',
    `hosts: the daemon did not resolve these host words within ${context.answerWithinMs} ms, and no host was contacted`,
    {
      data: { next: 'check the daemon: x0xd --doctor' },
    },
  )
}

const begun = async (request: ToolFleetRequest, key: string | null, context: ToolContext, call: ToolCall): Promise<ToolFleet> => {
  const { fleets } = context
  const known = fleets.withKey(key, request)
  if (known !== null) return known
  const hosts = await meant(request.words, context, call)
  const places = await placesIn(context)
  call.signal.throwIfAborted()
  // A concurrent call may have started the key meanwhile.
  return fleets.withKey(key, request) ?? fleets.start(request, hosts, { key, places })
}

export const execFleet: McpTool = tool({
  name: 'exec_fleet',
  title: 'Run on many hosts',
  description:
    'Runs one command on many mesh agents. Equal answers are given once, with their hosts; each host that did not run is named with the reason. Each host decides for itself. Use it instead of many calls with a target.',
  use: 'run the same command on several mesh agents.',
  input: INPUT,
  output: OUTPUT,
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  call: async (input, context, call) => {
    const { clock, answerWithinMs } = context
    const due = clock.monotonic() + (input.answer_within_ms ?? answerWithinMs)
    const fleet = await begun(requestOf(input), input.idempotency_key ?? null, context, call)
    await waitForAny(fleet, { context, call, withinMs: due - clock.monotonic(), cancels: true }, () => fleet.progress)
    return resultOf(fleet)
  },
})

export const execFleetWait: McpTool = tool({
  name: 'exec_fleet_wait',
  title: 'Wait for many hosts',
  description:
    'Waits for a command of exec_fleet, or ends it on all hosts, and answers as exec_fleet. If it outlasts the call, the answer has state running: then call again.',
  use: null,
  input: z.strictObject({
    fleet_id: z.string().min(1).max(80).describe('the fleet_id of a result'),
    cancel: z.boolean().default(false).describe('true: end running commands and start no more (default false)'),
    ...ANSWER_FIELD,
  }),
  output: OUTPUT,
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  call: async ({ fleet_id, cancel, answer_within_ms }, context, call) => {
    const fleet = context.fleets.get(fleet_id)
    if (cancel && !fleet.over) fleet.cancel()
    await waitForAny(fleet, { context, call, withinMs: answer_within_ms, cancels: false }, () => fleet.progress)
    return resultOf(fleet)
  },
})
