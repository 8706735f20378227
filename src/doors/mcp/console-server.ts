import type { Readable, Writable } from 'node:stream'

import { McpServer, type CallToolResult, type ServerContext } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import * as z from 'zod'

import { aborted } from '../../base/abortable.ts'
import type { Clock } from '../../base/clock.ts'
import { errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { VERSION } from '../../base/version.ts'
import { readConsoleLine, type ConsoleReply } from '../../protocol/console.ts'
import { Turnstile } from '../../base/turnstile.ts'
import { checkWith } from '../check-with.ts'
import { LineTransport } from './line-transport.ts'
import { callOf, NO_VALIDATOR, unchecked } from './mcp-server.ts'

/** The way to the console of this user. */
export interface ConsoleCaller {
  /** Sends a request once; aborting it ends the command. Null: no host listens, and nothing was sent. */
  run(request: object, signal: AbortSignal): Promise<ConsoleReply | null>
  /** True where a host listens. */
  check(): Promise<boolean>
}

export interface ConsoleServerComponents {
  readonly input: Readable
  readonly output: Writable
  readonly caller: ConsoleCaller
  readonly clock: Clock
  readonly log: Logger
}

/** Connections to the host at once; more calls wait. */
const MAX_CONNECTIONS = 32
/** Who waits for a command hears of it so often. */
const PROGRESS_MS = 5_000

const VARIABLES = z.record(z.string(), z.string())
const INPUT = z.strictObject({
  dir: z.string().describe('absolute path of the directory in which the command runs'),
  argv: z.array(z.string()).min(1).describe('the program and its arguments; no shell reads them'),
  envs: z
    .union([z.array(z.string()), VARIABLES])
    .optional()
    .describe('variables beside those of the host: ["CI=1"] or {"CI": "1"}'),
  env: VARIABLES.optional().describe('the same as an object'),
  stdin: z.string().optional().describe('standard input; without it /dev/null'),
  timeout: z.number().min(0).optional().describe('seconds until the command is ended; 0: never'),
  clear_env: z.boolean().optional().describe("leave the host's variables out"),
})
const REPLY = z.object({ exit: z.number(), output: z.string(), error: z.string().optional(), message: z.string().optional() })

const answer = (value: object, isError: boolean): CallToolResult => ({
  content: [{ type: 'text', text: JSON.stringify(value) }],
  structuredContent: { ...value },
  isError,
})

const refusal = (text: string): CallToolResult => ({ content: [{ type: 'text', text }], isError: true })

const NO_HOST = { exit: 127, output: '', error: 'host_not_found', message: 'HOST NOT FOUND: a human starts it with rexec --start-host' }

/** `["A=1"]` as `{A: "1"}`; a text says which entry is none. */
const variablesOf = ({ envs = {}, env = {} }: z.infer<typeof INPUT>): Record<string, string> | string => {
  if (!Array.isArray(envs)) return { ...envs, ...env }
  const wrong = envs.find((one) => one.indexOf('=') < 1)
  if (wrong !== undefined) return `envs: ${JSON.stringify(wrong.slice(0, 64))} is no VARIABLE=VALUE`
  return { ...Object.fromEntries(envs.map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)])), ...env }
}

/** Passes commands on to the console, in one name, and answers what it answers. */
class ConsoleTools {
  readonly #components: ConsoleServerComponents
  readonly #transport: LineTransport
  readonly #whoami: string
  readonly #turns = new Turnstile({ limit: MAX_CONNECTIONS })

  constructor(components: ConsoleServerComponents & { readonly transport: LineTransport }, init: { readonly whoami: string }) {
    this.#components = components
    this.#transport = components.transport
    this.#whoami = init.whoami
  }

  async exec(given: unknown, context: ServerContext): Promise<CallToolResult> {
    try {
      return await this.#transport.working(context.mcpReq.id, async () => this.#exec(given, context))
    } catch (error) {
      if (!isAppError(error)) throw error
      return refusal(`${error.code}: ${error.message}`)
    }
  }

  async #exec(given: unknown, context: ServerContext): Promise<CallToolResult> {
    const checked = checkWith<z.infer<typeof INPUT>>(INPUT, given)
    if ('error' in checked) return refusal(checked.error.message)
    const { dir, argv, stdin, timeout, clear_env } = checked.value
    const envs = variablesOf(checked.value)
    if (typeof envs === 'string') return refusal(envs)
    // What is not there is left out of JSON.
    const request = { whoami: this.#whoami, dir, envs, exec: argv, stdin, timeout, clear_env }
    const read = readConsoleLine(Buffer.from(JSON.stringify(request)))
    if (read.kind === 'bad') return refusal(read.problem)
    const call = callOf(context)
    const { clock, caller } = this.#components
    const began = clock.monotonic()
    const told = setInterval(() => call.progress(clock.monotonic() - began, 'it still runs'), PROGRESS_MS)
    let leave = (): void => undefined
    try {
      leave = await this.#turns.enter(call.signal)
      const reply = await caller.run(request, call.signal)
      await this.#transport.answering(context.mcpReq.id, call.signal)
      return reply === null ? answer(NO_HOST, true) : answer(reply, reply.exit !== 0 || reply.error !== undefined)
    } finally {
      clearInterval(told)
      leave()
    }
  }

  async checkHost(): Promise<CallToolResult> {
    const text = (await this.#components.caller.check()) ? 'HOST RUNNING' : 'HOST NOT FOUND'
    return { content: [{ type: 'text', text }] }
  }
}

const serverOf = (tools: ConsoleTools): McpServer => {
  const server = new McpServer(
    { name: 'rexec', title: 'rexec', version: VERSION },
    {
      instructions: 'Commands run on the console of a human, who sees each of them and its output, and may end it.',
      capabilities: { tools: { listChanged: false } },
      jsonSchemaValidator: NO_VALIDATOR,
    },
  )
  const exec = {
    title: 'Run a command where a human watches',
    description:
      'Runs a command on the console of a human. Answers {exit, output, error?}: the exit code (128+n for signal n, 124 when its time was up, 127 when it could not be run), and output and errors together as text.',
    inputSchema: unchecked(INPUT),
    outputSchema: REPLY,
    annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  }
  server.registerTool('exec', exec, async (given: unknown, context: ServerContext) => tools.exec(given, context))
  const check = {
    title: 'Is there a console?',
    description: 'Answers HOST RUNNING where a console listens, else HOST NOT FOUND.',
    annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
  }
  server.registerTool('check_host', check, async () => tools.checkHost())
  return server
}

/** Serves the tools of a console until the input ends, nobody reads the output any more, or the signal. */
export const serveConsole = async (
  components: ConsoleServerComponents,
  init: { readonly whoami: string },
  signal: AbortSignal,
): Promise<void> => {
  const transport = new LineTransport(components)
  const tools = new ConsoleTools({ ...components, transport }, init)
  const onerror = (error: unknown): void => components.log.debug({ error: errorText(error) }, 'a message of the client came to nothing')
  const handle = serveStdio(() => serverOf(tools), { transport, onerror })
  try {
    await Promise.race([transport.ended, aborted(signal)])
  } finally {
    await handle.close()
  }
}
