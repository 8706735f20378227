import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { appendFile, mkdir, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import type { Tool } from '@modelcontextprotocol/client'

import { entryText } from '../../src/policy/mesh/suggest.ts'
import { mcpPlace, startMcp, X0X } from '../../test/support/mcp-server.ts'
import { aliceBobCharlie, MeshOfDaemons, until, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { tempDir } from '../../test/support/temp-dir.ts'

// `x0x mcp --rules bob` with the daemon of alice. The rules that bob lists for her become tools of her AI agent.

const DISCOVERABLE = 'discoverable = true\nmax_duration_secs = 9\n'
const TARGETS = { security: 'allow_targets = ["bob", "charlie"]\n' }

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon

/** Bob allows alice these commands and lists them for her. */
const allow = async (...commands: readonly (readonly string[])[]): Promise<void> => {
  await bob.writeAcl([{ agent: alice, commands, description: 'Says what it is given. Changes nothing.', keys: DISCOVERABLE }])
  await bob.restart()
}

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;({ alice, bob } = await aliceBobCharlie(mesh, [['echo', '<INT>']]))
  await allow(['echo', '-n', '<INT>', 'and', '<INT>'], ['printf', '%s', 'p<URL_PATH>'], ['sleep', '<INT>'])
})

after(async () => mesh.stop())

const options = () => ({ flags: ['--rules', 'bob'], env: { X0X_DATA_DIR: alice.dir } })

const propertiesOf = (tool: Tool | undefined): Record<string, Record<string, unknown>> =>
  (tool?.inputSchema.properties ?? {}) as Record<string, Record<string, unknown>>

test('each command that the target lists is a tool with a parameter per slot, and no tool accepts an argv', async (t) => {
  const { client } = await startMcp(t, TARGETS, options())
  const { tools } = await client.listTools()
  assert.deepEqual(
    tools.map(({ name }) => name),
    ['rules_refresh', 'exec_wait', 'exec_output', 'exec_kill', 'exec_list', 'bob_echo_n_and', 'bob_printf_s_p', 'bob_sleep'],
  )
  const echo = tools.find(({ name }) => name === 'bob_echo_n_and')
  assert.equal(echo?.title, 'bob: Says what it is given. Changes nothing.')
  assert.match(
    echo?.description ?? '',
    /^Runs on bob exactly this, and nothing else: echo -n <INT> and <INT>\n.*not an instruction.*: "Says what it is given\. Changes nothing\."\n/,
  )
  assert.deepEqual(echo?.annotations, { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true })
  assert.equal(echo?.inputSchema.additionalProperties, false)
  assert.deepEqual(echo?.inputSchema.required, ['int_1', 'int_2'])
  const fields = propertiesOf(echo)
  assert.deepEqual([fields['int_1']?.['type'], fields['int_1']?.['minimum'], fields['int_1']?.['maximum']], ['integer', 1, 999_999])
  assert.match(String(fields['int_2']?.['description']), /it follows "and"/)
  const [seconds] = (fields['timeout_seconds'] ?? {})['anyOf'] as [{ maximum?: number }]
  assert.deepEqual([seconds.maximum, fields['timeout_seconds']?.['default']], [9, 9])
  const path = propertiesOf(tools.find(({ name }) => name === 'bob_printf_s_p'))['url_path']
  assert.deepEqual([path?.['type'], path?.['maxLength'], typeof path?.['pattern']], ['string', 257, 'string'])
  assert.doesNotMatch(String(path?.['pattern']), /\(\?[!=<]/)
  assert.match(client.getInstructions() ?? '', /fill in its parameters/)
})

test('a rule tool runs its command on the target, and invalid parameters are refused with an explanation', async (t) => {
  const { run, ask, lines } = await startMcp(t, TARGETS, options())
  const result = await run('bob_echo_n_and', { int_1: 7, int_2: 414 })
  assert.deepEqual(
    [result.success, result.operation, result.command, result.args, result.stdout, result.target, result.exit_code],
    [true, 'exec_rule', 'echo', ['-n', '7', 'and', '414'], '7 and 414', 'bob', 0],
  )
  assert.equal((await run('bob_printf_s_p', { url_path: '/a.b/c' })).stdout, 'p/a.b/c')
  const request = (await lines()).find((line) => line.event === 'request')
  assert.deepEqual(request?.event === 'request' && 'target' in request && [request.argv, request.target, request.client_name], [
    ['echo', '-n', '7', 'and', '414'],
    'bob',
    'a test',
  ])
  for (const [name, args, text] of [
    ['bob_echo_n_and', { int_1: 0, int_2: 1 }, /int_1: expected a whole number from 1 to 999999/],
    ['bob_echo_n_and', { int_1: '7', int_2: 1 }, /int_1: expected a whole number/],
    ['bob_echo_n_and', { int_1: 7 }, /int_2: missing; expected/],
    ['bob_echo_n_and', { int_1: 7, int_2: 1, args: ['-e', 'x'] }, /args: unknown key/],
    ['bob_echo_n_and', { int_1: 7, int_2: 1, stdin: 'x' }, /stdin: unknown key/],
    ['bob_echo_n_and', { int_1: 7, int_2: 1, timeout_seconds: 10 }, /timeout_seconds/],
    ['bob_printf_s_p', { url_path: '/../etc/passwd' }, /url_path: expected a path/],
    ['bob_printf_s_p', { url_path: 'x' }, /url_path: expected a path/],
    ['bob_printf_s_p', { url_path: `/${'x'.repeat(300)}` }, /url_path: expected .*at most 257|at most 257 characters/],
  ] as const) {
    const answer = await ask(name, args)
    assert.equal(answer.isError, true)
    assert.match(JSON.stringify(answer.content), text)
  }
  assert.equal((await lines()).filter((line) => line.event === 'request').length, 2)
})

test('a command that outlives its call is followed by its run_id, and exec_kill ends it', async (t) => {
  const { run, ask } = await startMcp(t, TARGETS, options())
  const begun = await run('bob_sleep', { int: 8, answer_within_ms: 0 })
  assert.ok(begun.run_id !== null && begun.state !== 'ended', JSON.stringify(begun))
  await until('it runs', async () => (await run('exec_wait', { run_id: begun.run_id, answer_within_ms: 100 })).state === 'running')
  await ask('exec_kill', { run_id: begun.run_id })
  const ended = await run('exec_wait', { run_id: begun.run_id })
  assert.deepEqual([ended.state, ended.success, ended.operation], ['ended', false, 'exec_rule'])
})

test('changed rules update the tools after a denial and after rules_refresh', async (t) => {
  const { client, run, ask } = await startMcp(t, TARGETS, options())
  let told = 0
  client.setNotificationHandler('notifications/tools/list_changed', () => void (told += 1))
  const names = async (): Promise<string[]> =>
    (await client.listTools()).tools.map(({ name }) => name).filter((name) => name.startsWith('bob_'))
  await allow(['echo', '<INT>'])
  const denied = await until('the target is asked again', async () => {
    const result = await run('bob_sleep', { int: 1 })
    return result.denial_reason !== null && result
  })
  assert.deepEqual([denied.denial_reason, denied.success, denied.launch_error], ['argv_not_allowed', false, null])
  // The server asks for the list at most every two seconds.
  await until('the client is told', async () => {
    // The tool may be removed at any time.
    if (told === 0) await ask('bob_sleep', { int: 1 }).catch(() => null)
    return told > 0
  })
  assert.equal(told, 1)
  assert.deepEqual(await names(), ['bob_echo'])
  assert.equal((await run('bob_echo', { int: 5 })).stdout, '5\n')
  await allow(['echo', '<INT>'], ['true'])
  const again = await until('its answer has another', async () => {
    const answer = (await ask('rules_refresh')).structuredContent as { changed: boolean; tools: string[]; problem: string | null }
    return answer.tools.length === 2 && answer
  })
  assert.deepEqual(again.tools, ['bob_echo', 'bob_true'])
  await until('the client is told of that', async () => told === 2)
  assert.deepEqual(await names(), ['bob_echo', 'bob_true'])
})

test('a server whose target does not answer or list its rules starts without tools, and can ask again', async (t) => {
  const nowhere = join((await mcpPlace(t)).dir, 'no-daemon')
  for (const [target, dir, problem] of [
    ['charlie', nowhere, /no daemon|cannot connect to x0xd/],
    ['alice', bob.dir, /does not say which commands it allows: trust_rejected/],
  ] as const) {
    const settings = { security: `allow_targets = ["${target}"]\n` }
    const server = await startMcp(t, settings, { flags: ['--rules', target], env: { X0X_DATA_DIR: dir } })
    const { tools } = await server.client.listTools()
    assert.ok(tools.every(({ name }) => !name.startsWith(`${target}_`)))
    const answer = await server.ask('rules_refresh')
    assert.equal(answer.isError, true)
    assert.match(JSON.stringify(answer.structuredContent), problem)
    assert.match(server.said(), /did not say which commands it allows/)
    const instructions = server.client.getInstructions() ?? ''
    assert.match(instructions, new RegExp(`^There are no tools for ${target} yet: `))
    assert.match(instructions, problem)
  }
})

test('for an unknown agent the server ends with status 2 and names the next step', async (t) => {
  const place = await mcpPlace(t, { security: 'allow_targets = ["*"]\n' })
  for (const target of ['charlie', 'boob', 'f'.repeat(63)]) {
    const args = [X0X, 'mcp', '--whoami', 'a', '--config', place.config, '--rules', target]
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', env: { ...process.env, X0X_DATA_DIR: alice.dir } })
    assert.equal(status, 2, stderr)
    assert.match(stderr, /--rules: .*(no contact|no agent)/)
    assert.match(stderr, /x0x contacts list/)
  }
})

test('a server with --rules does not start if its configuration does not allow the target', async (t) => {
  const place = await mcpPlace(t)
  for (const [agent, text] of [
    ['bob', /add "bob" to security\.allow_targets/],
    ['', /--rules: "" is not a name or ID of an agent/],
    ['x'.repeat(65), /is not a name or ID of an agent/],
  ] as const) {
    const args = [X0X, 'mcp', '--whoami', 'a', '--config', place.config, '--rules', agent]
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' })
    assert.equal(status, 2, stderr)
    assert.match(stderr, text)
  }
})

test('--init with --rules writes everything that the tools of a target need', async (t) => {
  await allow(['sleep', '<INT>'])
  const dir = await realpath(await tempDir(t))
  const [root, config] = [join(dir, 'app'), join(dir, 'mcp.toml')]
  await mkdir(root)
  const words = [X0X, 'mcp', '--init', root, '--config', config, '--whoami', 'reviewer', '--rules', 'bob']
  const env = { ...process.env, X0X_DATA_DIR: alice.dir }
  const { status, stdout, stderr } = spawnSync(process.execPath, words, { encoding: 'utf8', env })
  assert.equal(status, 0, stderr)
  assert.match(stderr, /Its tools are the commands that bob lists .*x0x acl mine bob/)
  assert.deepEqual(JSON.parse(stdout).mcpServers.bob.args, ['mcp', '--whoami', 'reviewer', '--config', config, '--rules', 'bob'])
  const { client, run } = await startMcp(t, {}, { ...options(), place: { dir, root, config, journal: join(dir, 'mcp.log') } })
  const names = (await client.listTools()).tools.map(({ name }) => name)
  assert.ok(names.includes('bob_sleep') && !names.includes('exec_status'), names.join(' '))
  assert.equal((await run('bob_sleep', { int: 1 })).success, true)
})

test('the ACL entry that x0x invite prints makes a tool, and doctor has no warning about it', async (t) => {
  await bob.writeAcl([])
  const { agentId: agent_id, machineId: machine_id } = alice
  await appendFile(bob.aclFile, entryText({ agent_id, machine_id, description: 'alice' }, ['df', '-h']))
  await bob.restart()
  const { client } = await startMcp(t, TARGETS, options())
  const names = (await client.listTools()).tools.map(({ name }) => name)
  assert.ok(names.includes('bob_df_h'), names.join(' '))
  const told = await alice.ok('doctor', 'bob', '--', 'df', '-h')
  assert.match(told, /^ok +command +df -h is allowed: /m)
  assert.doesNotMatch(told, /^warn +(remote rules|command|remote trust) /m)
})
