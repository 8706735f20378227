import assert from 'node:assert/strict'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test, type TestContext } from 'node:test'

import type { LocalRequestEvent } from '../../src/journal/events.ts'
import type { ToolResult } from '../../src/doors/tools/tool-result.ts'
import { startMcp, type McpServer } from '../../test/support/mcp-server.ts'
import { aliceBobCharlie, MeshOfDaemons, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'

// Tools with a target. The ACL of that agent permits or denies the command, and the result has the format of a local run.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
/** A root on bob. */
let files: string

before(async () => {
  mesh = await MeshOfDaemons.create()
  files = join(mesh.root, 'files')
  await mkdir(files)
  const commands = [['echo', '<INT>'], ['sha256sum'], ['sleep', '<INT>'], ['seq', '<INT>'], ['false']]
  ;({ alice, bob } = await aliceBobCharlie(mesh, commands))
  const keys = `[[exec.allow.files]]\nroot = "${files}"\nread = true\nwrite = true\n`
  await bob.writeAcl([{ agent: alice, commands, keys }])
  await bob.restart()
})

after(async () => mesh.stop())

const beside = async (t: TestContext): Promise<McpServer> =>
  startMcp(t, { security: 'allow_targets = ["bob", "nobody"]' }, { env: { X0X_DATA_DIR: alice.dir } })

/** The fields that must be equal in a local and a remote run of the same command. */
const comparable = ({ duration_ms, run_id, cwd: _cwd, target: _target, ...rest }: ToolResult) => {
  assert.ok(duration_ms >= 0)
  return { ...rest, handle: run_id !== null }
}

test('the same command has equal results on this machine and on a target, field by field', async (t) => {
  const server = await beside(t)
  const cases: readonly [name: string, args: Record<string, unknown>][] = [
    ['exec_status', { command: 'false' }],
    ['exec_capture', { command: 'echo', args: ['42'] }],
    ['exec_capture', { command: 'seq', args: ['30000'], max_stdout_bytes: 1_000 }],
    ['exec_with_input', { command: 'sha256sum', stdin: 'x'.repeat(100_000) }],
    ['exec_status', { command: 'sleep', args: ['30'], timeout_seconds: 1 }],
  ]
  for (const [name, args] of cases) {
    const [here, there] = [await server.run(name, args), await server.run(name, { ...args, target: 'bob' })]
    assert.deepEqual(comparable(there), comparable(here), JSON.stringify(args))
    assert.deepEqual([here.cwd, here.target, there.cwd, there.target], [server.root, null, null, 'bob'])
    assert.deepEqual(Object.keys(there), Object.keys(here))
  }
})

test('a denial of the target has its reason, and options that targets do not support are denied locally', async (t) => {
  const server = await beside(t)
  const denied = await server.run('exec_capture', { command: 'cat', args: ['/etc/shadow'], target: 'bob' })
  assert.deepEqual([denied.success, denied.denial_reason, denied.launch_error, denied.exit_code], [false, 'argv_not_allowed', null, null])
  assert.match(String(denied.denial_detail), /bob denied ".*" \(\w+\): /)
  const elsewhere = await server.run('exec_capture', { command: 'echo', args: ['1'], target: 'bob', cwd: '/' })
  assert.deepEqual([elsewhere.denial_reason, elsewhere.launch_error], ['unsupported_capability', null])
  const unknown = await server.run('exec_capture', { command: 'echo', args: ['1'], target: 'nobody' })
  assert.deepEqual([unknown.denial_reason, unknown.launch_error?.kind], [null, 'config'])
  const forbidden = await server.run('exec_capture', { command: 'echo', args: ['1'], target: 'charlie' })
  assert.equal(forbidden.denial_reason, 'unsupported_capability')
  assert.equal((await bob.journal()).filter(({ event, argv }) => event === 'denial' && String(argv) === 'cat,/etc/shadow').length, 1)
})

test('check_host reaches and authenticates a target and the own daemon without a run, and rejects an unknown agent', async (t) => {
  const { ask } = await startMcp(t, { security: 'allow_targets = ["*"]' }, { env: { X0X_DATA_DIR: alice.dir } })
  const runs = async (): Promise<number> => (await bob.journal()).filter(({ event }) => event === 'request').length
  const before = await runs()
  const check = async (target: string): Promise<unknown[]> => {
    const { structuredContent, content, isError } = await ask('check_host', { target })
    const { reachable, agent_id, machine_id, trust, problem } = (structuredContent ?? {}) as Record<string, unknown>
    assert.equal(isError, false, JSON.stringify(content))
    return [reachable, agent_id, machine_id, trust, problem]
  }
  assert.deepEqual(await check('bob'), [true, bob.agentId, bob.machineId, 'accept_with_flag', null])
  assert.deepEqual(await check(alice.agentId), [true, alice.agentId, alice.machineId, 'accept', null])
  const unknown = await ask('check_host', { target: 'nobody' })
  assert.equal(unknown.isError, true)
  assert.match(JSON.stringify(unknown.content), /unknown_agent/)
  const which = await ask('which_command', { command: 'echo', target: 'bob' })
  assert.equal((which.structuredContent as Record<string, unknown>)['found'], null)
  assert.equal(await runs(), before)
})

test('the file tools work on a target, its ACL decides, and its audit log has the client and the target', async (t) => {
  const { ask, lines } = await beside(t)
  const told = async (name: string, args: Record<string, unknown>): Promise<Record<string, unknown>> => {
    const { structuredContent, content, isError } = await ask(name, { target: 'bob', ...args })
    assert.equal(isError, false, JSON.stringify(content))
    return structuredContent as Record<string, unknown>
  }
  const path = join(files, 'a.txt')
  assert.equal((await told('write_file', { path, content: 'one two' }))['created'], true)
  assert.equal((await told('edit_file', { path, old_string: 'two', new_string: 'three' }))['replacements'], 1)
  const { content, mtime } = await told('read_file', { path, offset: 4 })
  assert.equal(content, 'three')
  assert.equal((await told('stat_file', { path }))['mtime'], mtime)
  assert.deepEqual((await told('glob_files', { pattern: '*.txt', path: files }))['matches'], [path])
  assert.equal(((await told('list_directory', { path: files }))['entries'] as unknown[]).length, 1)
  const patch = `*** Begin Patch\n*** Update File: a.txt\n@@\n-one three\n+four\n*** End Patch`
  assert.deepEqual((await told('apply_patch', { patch, path: files }))['updated'], [path])
  assert.equal(await readFile(path, 'utf8'), 'four')
  const refused = async (name: string, args: Record<string, unknown>, pattern: RegExp): Promise<void> => {
    const answer = await ask(name, args)
    assert.equal(answer.isError, true)
    assert.match(JSON.stringify(answer.content), pattern)
  }
  await refused('read_file', { path: '/etc/passwd', target: 'bob' }, /command_denied.*argv_not_allowed/)
  await refused('read_file', { path: 'a.txt', target: 'bob' }, /must be absolute/)
  await refused('write_file', { path, content: 'x', target: 'bob' }, /conflict.*replace/)
  await refused('read_file', { path, target: 'charlie' }, /unsupported_capability/)
  const written = (await lines()).filter(({ event }) => event === 'file_write')
  assert.deepEqual(new Set(written.map((line) => ('path' in line ? line.path : null))), new Set([path]))
  const targets = (await lines()).flatMap((line) => (line.event === 'session' ? [line.target] : []))
  assert.ok(targets.includes('bob'))
})

// O13: a command on an agent that the call or the configuration names as its node.

const onNode = async (t: TestContext, tools: string): Promise<McpServer> =>
  startMcp(t, { security: 'allow_targets = ["bob"]', mcp: `\n[tools.exec]\n${tools}` }, { env: { X0X_DATA_DIR: alice.dir } })

const ECHO = { command: 'echo', args: ['42'] }
const OPEN = 'security = "full"\nask = "off"\nallowed_hosts = ["node"]\n'

test('O13: a node is named by its ID, a prefix or a name, and the result says where the command ran', async (t) => {
  const server = await onNode(t, OPEN)
  for (const node of ['bob', 'BOB', bob.agentId, bob.agentId.slice(0, 8)]) {
    const result = await server.run('exec_capture', { ...ECHO, host: 'node', node })
    assert.deepEqual([result.success, result.stdout], [true, '42\n'], JSON.stringify(result))
    assert.deepEqual(result.ran_on, { host: 'node', agent_id: bob.agentId, name: 'bob' })
  }
  const target = await server.run('exec_capture', { ...ECHO, target: 'bob' })
  assert.deepEqual(target.ran_on, { host: 'node', agent_id: bob.agentId, name: 'bob' })
  const request = (await server.lines()).find(({ event }) => event === 'request') as LocalRequestEvent | undefined
  assert.deepEqual([request?.target, request?.ran_on?.agent_id], [bob.agentId, bob.agentId])
})

test('O5: the configuration can fix the node, and by default no command runs on a node', async (t) => {
  const bound = await onNode(t, `host = "node"\nnode = "bob"\nsecurity = "full"\nask = "off"\n`)
  assert.deepEqual((await bound.run('exec_capture', ECHO)).ran_on?.agent_id, bob.agentId)
  const other = await bound.run('exec_capture', { ...ECHO, node: 'charlie' })
  assert.equal(other.denial_reason, 'command_denied')
  const closed = await onNode(t, 'host = "node"\nnode = "bob"\n')
  assert.equal((await closed.run('exec_capture', ECHO)).denial_reason, 'command_denied')
  const here = await onNode(t, '')
  const refused = await here.run('exec_capture', { ...ECHO, target: 'bob' })
  assert.equal(refused.denial_reason, 'command_denied')
})
