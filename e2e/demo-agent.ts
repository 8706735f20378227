import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { Client, type CallToolResult } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

import type { ToolResult } from '../src/doors/tools/tool-result.ts'
import { X0X } from '../test/support/mcp-server.ts'
import { cleanEnvironment, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import type { Stage } from './stage.ts'

const configure = async (directory: string): Promise<string> => {
  const file = join(directory, 'agent.toml')
  const files = join(directory, 'files')
  await mkdir(files, { recursive: true })
  const roots = `[[security.allowed_roots]]\npath = ${JSON.stringify(files)}`
  const lines = [`audit = { path = ${JSON.stringify(join(directory, 'agent.jsonl'))} }`, '[security]', 'allow_targets = ["bob"]', roots]
  await writeFile(file, lines.join('\n'), { mode: 0o600 })
  return file
}

const textOf = ({ content }: CallToolResult): string => content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')

/** A call of a tool for everybody to see. */
const callOf = (stage: Stage, client: Client) => async (name: string, args: Record<string, unknown>) => {
  const began = performance.now()
  const answer = await client.callTool({ name, arguments: args })
  const result = answer.structuredContent as ToolResult | undefined
  const { success, stdout, denial_reason } = result ?? {}
  const shown = result === undefined ? textOf(answer) : JSON.stringify({ success, stdout, denial_reason })
  stage.command('agent', `${name} ${JSON.stringify(args)}`, shown)
  return { answer, result, ms: performance.now() - began }
}

/** What an AI agent of alice's gets of bob: one typed tool for each command that he allows her. `narrow`: he allows less from now on. */
export const showAgent = async (stage: Stage, alice: TestDaemon, directory: string, narrow: () => Promise<void>): Promise<void> => {
  stage.section("For AI agents: bob's rules as typed tools, by the Model Context Protocol")
  const mine = await alice.cli(['acl', 'mine', 'bob'], { env: { NO_COLOR: '1' } })
  stage.command('alice', 'x0x acl mine bob', mine.stdout.toString() + mine.stderr)
  stage.expect('bob tells alice, and nobody else, what she may run', mine.status === 0 && mine.stdout.includes('echo <INT>'), mine.ms)
  const args = [X0X, 'mcp', '--whoami', 'demo', '--config', await configure(directory), '--rules', 'bob']
  const env = { ...cleanEnvironment(), X0X_DATA_DIR: alice.dir } as Record<string, string>
  const client = new Client({ name: 'demo', version: '1' })
  let told = false
  client.setNotificationHandler('notifications/tools/list_changed', () => void (told = true))
  await client.connect(new StdioClientTransport({ command: process.execPath, args, env, stderr: 'ignore' }))
  try {
    const names = async (): Promise<string[]> =>
      (await client.listTools()).tools.map(({ name }) => name).filter((name) => name.startsWith('bob_'))
    stage.command('alice', 'x0x mcp --whoami demo --rules bob', `tools: ${(await names()).join('  ')}`)
    const call = callOf(stage, client)
    const allowed = await call('bob_echo', { int: 42 })
    stage.expect('the agent fills in a slot, and bob runs it', allowed.result?.stdout === '42\n', allowed.ms)
    const other = await call('bob_echo', { int: 'hello; ls' })
    stage.expect(
      'what is no <INT> never leaves this host',
      other.answer.isError === true && textOf(other.answer).includes('int: expected'),
      other.ms,
    )
    await narrow()
    const denied = await call('bob_printenv_PATH', {})
    stage.expect('what bob does not allow any more is his denial', denied.result?.denial_reason === 'argv_not_allowed', denied.ms)
    const began = performance.now()
    await until('the list has changed', async () => told || (await client.callTool({ name: 'rules_refresh', arguments: {} }), false))
    const left = await names()
    stage.expect('and the tool is gone', !left.includes('bob_printenv_PATH') && left.includes('bob_echo'), performance.now() - began)
  } finally {
    await client.close()
  }
}
