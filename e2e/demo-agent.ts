import { execFile } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

import type { ToolResult } from '../src/doors/tools/tool-result.ts'
import { X0X } from '../test/support/mcp-server.ts'
import { cleanEnvironment, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import type { Stage } from './stage.ts'

interface Call {
  readonly result: Partial<ToolResult>
  readonly isError: boolean
  readonly text: string
  readonly ms: number
}

interface Agent {
  readonly client: Client
  /** Calls a tool and prints the call. */
  call(name: string, args: Record<string, unknown>): Promise<Call>
}

const serve = async (stage: Stage, alice: TestDaemon, args: readonly string[], use: (agent: Agent) => Promise<void>): Promise<void> => {
  const env = { ...cleanEnvironment(), X0X_DATA_DIR: alice.dir } as Record<string, string>
  const client = new Client({ name: 'demo', version: '1' })
  await client.connect(new StdioClientTransport({ command: process.execPath, args: [X0X, ...args], env, stderr: 'ignore' }))
  const call: Agent['call'] = async (name, given) => {
    const began = performance.now()
    const { structuredContent, content, isError = false } = await client.callTool({ name, arguments: given })
    const text = content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')
    const { success, stdout, denial_reason } = (structuredContent ?? {}) as Partial<ToolResult>
    stage.command(
      'agent',
      `${name} ${JSON.stringify(given)}`,
      structuredContent ? JSON.stringify({ success, stdout, denial_reason }) : text,
    )
    return { result: structuredContent ?? {}, isError, text, ms: performance.now() - began }
  }
  try {
    await use({ client, call })
  } finally {
    await client.close()
  }
}

/** Writes a configuration for a directory with `x0x mcp --init` and adds bob as a target. Returns the arguments for the MCP client. */
const configure = async (stage: Stage, directory: string): Promise<string[]> => {
  const [work, config] = [join(directory, 'agent-work'), join(directory, 'reviewer.toml')]
  await mkdir(work, { recursive: true })
  const init = ['mcp', '--init', work, '--whoami', 'reviewer', '--config', config]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [X0X, ...init], { env: cleanEnvironment() })
  stage.command('alice', 'x0x mcp --init work --whoami reviewer', stderr.split('\n')[0]?.replaceAll(`${directory}/`, '') ?? '')
  await writeFile(config, (await readFile(config, 'utf8')).replace('allow_targets = []', 'allow_targets = ["bob"]'))
  stage.note('Then, in that file: allow_targets = ["bob"]')
  return (JSON.parse(stdout) as { mcpServers: { x0x: { args: string[] } } }).mcpServers.x0x.args
}

const showTools = async (stage: Stage, { call }: Agent): Promise<void> => {
  const here = await call('exec_status', { command: 'sh', args: ['-c', 'id'] })
  stage.expect('the AI agent gets no shell: command_denied', here.result.denial_reason === 'command_denied', here.ms)
  const file = await call('read_file', { path: '../reviewer.toml' })
  stage.expect('it cannot read a file outside its directory', file.isError, file.ms)
  const there = await call('exec_capture', { command: 'echo', args: ['42'], target: 'bob' })
  stage.expect('it can run a command on bob that his ACL allows', there.result.success === true && there.result.stdout === '42\n', there.ms)
  const refused = await call('exec_capture', { command: 'echo', args: ['hello'], target: 'bob' })
  stage.expect('other commands on bob are denied: argv_not_allowed', refused.result.denial_reason === 'argv_not_allowed', refused.ms)
}

const showRules = async (stage: Stage, { client, call }: Agent, narrow: () => Promise<void>): Promise<void> => {
  let told = false
  client.setNotificationHandler('notifications/tools/list_changed', () => void (told = true))
  const names = async (): Promise<string[]> =>
    (await client.listTools()).tools.map(({ name }) => name).filter((name) => name.startsWith('bob_'))
  stage.command('alice', 'x0x mcp --whoami reviewer --rules bob', `tools: ${(await names()).join('  ')}`)
  const allowed = await call('bob_echo', { int: 42 })
  stage.expect('the AI agent fills in the number, and bob runs the command', allowed.result.stdout === '42\n', allowed.ms)
  const other = await call('bob_echo', { int: 'hello; ls' })
  stage.expect('a value that is not an <INT> is refused before it is sent', other.isError && other.text.includes('int: expected'), other.ms)
  told = false
  await narrow()
  const denied = await call('bob_printenv_PATH', {})
  stage.expect('bob removed that rule, so he denies the command', denied.result.denial_reason === 'argv_not_allowed', denied.ms)
  const began = performance.now()
  await until('the list has changed', async () => told || (await client.callTool({ name: 'rules_refresh', arguments: {} }), false))
  const left = await names()
  stage.expect(
    'the tool is removed from the list',
    !left.includes('bob_printenv_PATH') && left.includes('bob_echo'),
    performance.now() - began,
  )
}

/** Shows the tools of an AI agent of alice on this machine and on bob. `narrow` removes permissions from bob's ACL. */
export const showAgent = async (stage: Stage, alice: TestDaemon, directory: string, narrow: () => Promise<void>): Promise<void> => {
  stage.section('For AI agents: limited tools for one directory and for bob (MCP)')
  const args = await configure(stage, directory)
  await serve(stage, alice, args, async (agent) => showTools(stage, agent))
  stage.section('For AI agents: one tool for each rule of bob')
  const mine = await alice.cli(['acl', 'mine', 'bob'], { env: { NO_COLOR: '1' } })
  stage.command('alice', 'x0x acl mine bob', mine.stdout.toString() + mine.stderr)
  stage.expect('bob lists the commands that alice may run', mine.status === 0 && mine.stdout.includes('echo <INT>'), mine.ms)
  await serve(stage, alice, [...args, '--rules', 'bob'], async (agent) => showRules(stage, agent, narrow))
}
