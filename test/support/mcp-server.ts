import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { Client, type CallToolResult, type RequestOptions } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

import type { JournalLine } from '../../src/journal/events.ts'
import type { ToolResult } from '../../src/doors/tools/tool-result.ts'
import { isLifeEvent, wholeLines } from './journal.ts'

const ROOT = join(import.meta.dirname, '../..')
/** The program that AI agents start. */
export const X0X = join(ROOT, 'deploy/bin/x0x.cjs')

/** Lines of TOML for each section, added to the minimum that it needs to start. */
export interface McpSettings {
  readonly limits?: string
  readonly security?: string
  readonly mcp?: string
}

export interface McpPlace {
  readonly dir: string
  /** The only root. */
  readonly root: string
  readonly config: string
  readonly journal: string
}

/** A configuration in a temporary directory, with one root. */
export const mcpPlace = async (
  t: Pick<TestContext, 'after'>,
  { limits = '', security = '', mcp = '' }: McpSettings = {},
): Promise<McpPlace> => {
  const dir = await realpath(await mkdtemp(join(tmpdir(), 'x0x-mcp-')))
  t.after(() => rm(dir, { recursive: true, force: true, maxRetries: 10 }))
  const [root, config, journal] = [join(dir, 'root'), join(dir, 'config.toml'), join(dir, 'log', 'audit.log')]
  await mkdir(root)
  const text = [
    `[limits]\n${limits}`,
    `[mcp]\n${mcp}`,
    `[security]\n${security}`,
    `[[security.allowed_roots]]\npath = ${JSON.stringify(root)}`,
    `[audit]\npath = ${JSON.stringify(journal)}`,
  ].join('\n')
  await writeFile(config, text, { mode: 0o600 })
  return { dir, root, config, journal }
}

export interface McpOptions {
  readonly place?: McpPlace
  readonly whoami?: string
  readonly flags?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  /** A command prefix that starts it. */
  readonly through?: readonly string[]
  /** True for the newer generation of the protocol. Default: that of 2025. */
  readonly modern?: boolean
}

/** A running `x0x mcp`, and an initialized client of the official library. */
export interface McpServer extends McpPlace {
  readonly client: Client
  readonly pid: number
  /** Calls a tool and returns any answer. */
  ask(name: string, args?: Record<string, unknown>, options?: RequestOptions): Promise<CallToolResult>
  /** Calls a tool that runs a command. Returns the structured content, which must match the text. */
  run(name: string, args: Record<string, unknown>, options?: RequestOptions): Promise<ToolResult>
  /** Lines of the audit log, without those about the log itself. */
  lines(): Promise<JournalLine[]>
  /** All its output on standard error. */
  said(): string
  close(): Promise<void>
}

/** The JSON in a result's text, either alone or between the lines of a frame. */
export const jsonIn = ({ content }: CallToolResult): unknown => {
  const [part] = content
  assert.equal(content.length, 1)
  assert.ok(part?.type === 'text')
  const lines = part.text.split('\n')
  assert.ok(lines.length === 1 || lines.length === 3, part.text)
  return JSON.parse(lines.length === 1 ? lines[0]! : lines[1]!)
}

export const startMcp = async (t: TestContext, settings: McpSettings = {}, options: McpOptions = {}): Promise<McpServer> => {
  assert.ok(existsSync(join(ROOT, 'dist/x0x-mcp.mjs')), 'dist/ is missing: npm run build')
  const place = options.place ?? (await mcpPlace(t, settings))
  const args = [X0X, 'mcp', '--whoami', options.whoami ?? 'a test', '--config', place.config, ...(options.flags ?? [])]
  const env = { ...process.env, ...options.env } as Record<string, string>
  const [command = '', ...words] = [...(options.through ?? []), process.execPath, ...args]
  const transport = new StdioClientTransport({ command, args: words, env, stderr: 'pipe' })
  // The library adds a listener for each message that waits for room. So only one message waits at a time.
  const send = transport.send.bind(transport)
  let sent = Promise.resolve()
  transport.send = async (message) => (sent = sent.then(async () => send(message)))
  let said = ''
  transport.stderr?.on('data', (part: Buffer) => (said += part.toString()))
  const negotiation = options.modern === true ? { versionNegotiation: { mode: 'auto' as const } } : {}
  const client = new Client({ name: 'test', version: '1' }, negotiation)
  t.after(() => client.close())
  await client.connect(transport)
  const ask: McpServer['ask'] = async (name, given = {}, how = {}) => client.callTool({ name, arguments: given }, how)
  const run: McpServer['run'] = async (name, given, how) => {
    const answer = await ask(name, given, how)
    assert.deepEqual(jsonIn(answer), answer.structuredContent, JSON.stringify(answer.content))
    return answer.structuredContent as ToolResult
  }
  const lines = async (): Promise<JournalLine[]> =>
    wholeLines(await readFile(place.journal, 'utf8'))
      .map((line) => JSON.parse(line) as JournalLine)
      .filter((line) => !isLifeEvent(line))
  return { ...place, client, pid: transport.pid ?? 0, ask, run, lines, said: () => said, close: () => client.close() }
}
