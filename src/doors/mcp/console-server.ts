import { type CallToolResult, McpServer, type ServerContext } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import type { Readable, Writable } from 'node:stream'
import * as z from 'zod'
import { aborted } from '../../base/abort.ts'
import type { Clock } from '../../base/clock.ts'
import { AppError, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { VERSION } from '../../base/runtime.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { type ConsoleReply, readConsoleLine } from '../../protocol/console/messages.ts'
import { PROGRESS_MS } from '../../protocol/limits/tools.ts'
import { nullIsAbsent } from '../null-is-absent.ts'
import { parseWith } from '../validation.ts'
import { LineTransport } from './line-transport.ts'
import { NO_VALIDATOR, callOf, refusalOf, unchecked } from './server.ts'
import type { ToolCall } from './tool.ts'

/** Connects to the console of this user. */
export interface ConsoleCaller {
  /** Sends a request once; aborting it ends the command. Null means that no host listens, and nothing was sent. */
  run(request: object, signal: AbortSignal): Promise<ConsoleReply | null>
  /** True if a host listens. */
  check(): Promise<boolean>
}

export interface ConsoleServerComponents {
  readonly input: Readable
  readonly output: Writable
  readonly caller: ConsoleCaller
  readonly clock: Clock
  readonly log: Logger
}

/** Maximum number of connections to the host; more calls wait. */
const MAX_CONNECTIONS = 32

const VARIABLES = z.record(z.string(), z.string())
const INPUT = nullIsAbsent(
  z.strictObject({
    dir: z.string().describe('absolute path of the working directory'),
    argv: z.array(z.string()).min(1).describe('the program and its arguments; run without a shell'),
    envs: z
      .union([z.array(z.string()), VARIABLES])
      .optional()
      .describe('environment variables in addition to those of the host: ["CI=1"] or {"CI": "1"}'),
    env: VARIABLES.optional().describe('the same variables as an object'),
    stdin: z.string().optional().describe('standard input (default: /dev/null)'),
    timeout: z.number().min(0).optional().describe('seconds until the command is ended; 0 means never'),
    clear_env: z.boolean().optional().describe('true: run without the environment variables of the host'),
  }),
)
const REPLY = z.object({
  exit: z.number(),
  output: z.string(),
  error: z.string().optional(),
  message: z.string().optional(),
  descendants_ended: z.number().optional(),
})

const answer = (value: object, isError: boolean): CallToolResult => ({
  content: [{ type: 'text', text: JSON.stringify(value) }],
  structuredContent: { ...value },
  isError,
})

const NO_HOST = { exit: 127, output: '', error: 'host_not_found', message: 'HOST NOT FOUND: the user can start it with rexec --start-host' }

/** `["A=1"]` as `{A: "1"}`. Throws `bad_request`. */
const variablesOf = ({ envs = {}, env = {} }: z.infer<typeof INPUT>): Record<string, string> => {
  if (!Array.isArray(envs)) return { ...envs, ...env }
  const wrong = envs.find((one) => one.indexOf('=') < 1)
  if (wrong !== undefined) throw new AppError('bad_request', `envs: ${JSON.stringify(wrong.slice(0, 64))} is not VARIABLE=VALUE`)
  return { ...Object.fromEntries(envs.map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)])), ...env }
}

/** The request to the console. Throws `bad_request`. */
const requestOf = (given: unknown, whoami: string): object => {
  const input = parseWith<z.infer<typeof INPUT>>(INPUT, given)
  const { dir, argv, stdin, timeout, clear_env } = input
  // JSON omits undefined fields.
  const request = { whoami, dir, envs: variablesOf(input), exec: argv, stdin, timeout, clear_env }
  const read = readConsoleLine(Buffer.from(JSON.stringify(request)))
  if (read.kind === 'bad') throw new AppError('bad_request', read.problem)
  return request
}

/** Passes commands to the console under one name. */
class ConsoleTools {
  readonly #deps: ConsoleServerComponents & { readonly transport: LineTransport }
  readonly #whoami: string
  readonly #turns = new Semaphore({ limit: MAX_CONNECTIONS })

  constructor(deps: ConsoleServerComponents & { readonly transport: LineTransport }, init: { readonly whoami: string }) {
    this.#deps = deps
    this.#whoami = init.whoami
  }

  async exec(given: unknown, context: ServerContext): Promise<CallToolResult> {
    const { id } = context.mcpReq
    const work = async (): Promise<CallToolResult> => this.#run(requestOf(given, this.#whoami), id, callOf(context))
    return this.#deps.transport.working(id, work).catch(refusalOf)
  }

  async #run(request: object, id: string | number, call: ToolCall): Promise<CallToolResult> {
    const { clock, caller, transport } = this.#deps
    const began = clock.monotonic()
    let state = 'waiting for other commands'
    const told = setInterval(() => call.progress(clock.monotonic() - began, state), PROGRESS_MS)
    let leave = (): void => undefined
    try {
      leave = await this.#turns.acquire(call.signal)
      state = 'running'
      const reply = await caller.run(request, call.signal)
      // The slot is held until the answer is made, which bounds the number of replies in memory.
      await transport.answering(id, call.signal)
      return reply === null ? answer(NO_HOST, true) : answer(reply, reply.exit !== 0 || reply.error !== undefined)
    } finally {
      clearInterval(told)
      leave()
    }
  }

  async checkHost(): Promise<CallToolResult> {
    const text = (await this.#deps.caller.check()) ? 'HOST RUNNING' : 'HOST NOT FOUND'
    return { content: [{ type: 'text', text }] }
  }
}

const serverOf = (tools: ConsoleTools): McpServer => {
  const server = new McpServer(
    { name: 'rexec', title: 'rexec', version: VERSION },
    {
      instructions: 'Commands run in the console of the user. The user sees each command with its output, and can stop it.',
      capabilities: { tools: { listChanged: false } },
      jsonSchemaValidator: NO_VALIDATOR,
    },
  )
  const exec = {
    title: 'Run a command that the user watches',
    description:
      'Runs a command in the console of the user. Answers {exit, output, error?}: the exit code (128+n for signal n, 124 after a timeout, 127 if it could not be run), and stdout and stderr together as text.',
    inputSchema: unchecked(INPUT),
    outputSchema: REPLY,
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  }
  server.registerTool('exec', exec, async (given: unknown, context: ServerContext) => tools.exec(given, context))
  const check = {
    title: 'Check the console',
    description: 'Answers HOST RUNNING if a console is running, otherwise HOST NOT FOUND.',
    annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
  }
  server.registerTool('check_host', check, async () => tools.checkHost())
  return server
}

/** Serves the tools of a console until the input ends, the output is closed, or the signal aborts. */
export const serveConsole = async (
  deps: ConsoleServerComponents,
  init: { readonly whoami: string },
  signal: AbortSignal,
): Promise<void> => {
  const transport = new LineTransport(deps)
  const tools = new ConsoleTools({ ...deps, transport }, init)
  const onerror = (error: unknown): void => deps.log.debug({ error: errorText(error) }, 'a message of the client could not be handled')
  const handle = serveStdio(() => serverOf(tools), { transport, onerror })
  try {
    await Promise.race([transport.ended, aborted(signal)])
  } finally {
    await handle.close()
  }
}
