import { execFile } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

import { cleanEnvironment, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import type { Stage } from './stage.ts'

const X0X = fileURLToPath(new URL('../deploy/bin/x0x.cjs', import.meta.url))

/** What runtimes of agents are told, as `x0x mcp --init` prints it. */
interface Told {
  readonly mcpServers: { readonly x0x: { readonly args: string[] } }
}

interface Answer {
  readonly result: Record<string, unknown>
  readonly isError: boolean
  readonly ms: number
}

/** What an AI agent of alice's gets: a directory, four commands, and what bob's ACL allows her on his machine. */
export const showTools = async (stage: Stage, alice: TestDaemon, directory: string): Promise<void> => {
  stage.section('For AI agents: bounded tools, here and on the mesh, by the Model Context Protocol')
  const [work, config] = [join(directory, 'agent-work'), join(directory, 'reviewer.toml')]
  await mkdir(work, { recursive: true })
  const init = ['mcp', '--init', work, '--whoami', 'reviewer', '--config', config]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [X0X, ...init], { env: cleanEnvironment() })
  stage.command('alice', 'x0x mcp --init work --whoami reviewer', stderr.split('\n')[0]?.replaceAll(`${directory}/`, '') ?? '')
  await writeFile(config, (await readFile(config, 'utf8')).replace('allow_targets = []', 'allow_targets = ["bob"]'))
  stage.note('then, in that file: allow_targets = ["bob"]')
  const { args } = (JSON.parse(stdout) as Told).mcpServers.x0x
  const env = { ...cleanEnvironment(), X0X_DATA_DIR: alice.dir } as Record<string, string>
  const client = new Client({ name: 'demo', version: '1' })
  await client.connect(new StdioClientTransport({ command: process.execPath, args: [X0X, ...args], env, stderr: 'ignore' }))
  try {
    await showCalls(stage, client)
  } finally {
    await client.close()
  }
}

/** Calls tools for everybody to see: of what they answer these fields, or the text of an error. */
const caller =
  (stage: Stage, client: Client) =>
  async (name: string, given: Record<string, unknown>, ...fields: readonly string[]): Promise<Answer> => {
    const began = performance.now()
    const { structuredContent, content, isError = false } = await client.callTool({ name, arguments: given })
    const result = (structuredContent ?? {}) as Record<string, unknown>
    const told = JSON.stringify(Object.fromEntries(fields.map((field) => [field, result[field]])))
    const [part] = content
    stage.command('agent', `${name} ${JSON.stringify(given)}`, fields.length > 0 ? told : part?.type === 'text' ? part.text : '')
    return { result, isError, ms: performance.now() - began }
  }

const showCalls = async (stage: Stage, client: Client): Promise<void> => {
  const call = caller(stage, client)
  const here = await call('exec_status', { command: 'sh', args: ['-c', 'id'] }, 'success', 'denial_reason')
  stage.expect('no shell here: command_denied', here.result['denial_reason'] === 'command_denied', here.ms)
  const file = await call('read_file', { path: '../reviewer.toml' })
  stage.expect('and no file outside its directory', file.isError, file.ms)
  const there = await call('exec_capture', { command: 'echo', args: ['42'], target: 'bob' }, 'success', 'exit_code', 'stdout')
  stage.expect("bob's, under his ACL", there.result['success'] === true && there.result['stdout'] === '42\n', there.ms)
  const refused = await call('exec_capture', { command: 'echo', args: ['hello'], target: 'bob' }, 'success', 'denial_reason', 'stdout')
  stage.expect('and nothing else of his: argv_not_allowed', refused.result['denial_reason'] === 'argv_not_allowed', refused.ms)
}
