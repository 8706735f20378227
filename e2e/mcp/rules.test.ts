import assert from 'node:assert/strict'
import { appendFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'

import type { Tool } from '@modelcontextprotocol/client'

import { entryText } from '../../src/policy/mesh/explain.ts'
import { startMcp } from '../../test/support/mcp-server.ts'
import { aliceBobCharlie, MeshOfDaemons, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'

// `x0x mcp --rules bob` beside alice's daemon: what bob allows her is her agent's tools.

const DISCOVERABLE = 'discoverable = true\nmax_duration_secs = 9\n'
const TARGETS = { security: 'allow_targets = ["bob", "charlie"]\n' }

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon

/** Bob allows alice these, and tells her of them. */
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

test('each command that the target tells is a tool with its slots as parameters, and none takes an argv', async (t) => {
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
    /^Runs on bob exactly this, and nothing else: echo -n <INT> and <INT>\n.*no instruction.*: "Says what it is given\. Changes nothing\."\n/,
  )
  assert.deepEqual(echo?.annotations, { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true })
  assert.equal(echo?.inputSchema.additionalProperties, false)
  assert.deepEqual(echo?.inputSchema.required, ['int_1', 'int_2'])
  const fields = propertiesOf(echo)
  assert.deepEqual([fields['int_1']?.['type'], fields['int_1']?.['minimum'], fields['int_1']?.['maximum']], ['integer', 1, 999_999])
  assert.match(String(fields['int_2']?.['description']), /it stands behind "and"/)
  const [seconds] = (fields['timeout_seconds'] ?? {})['anyOf'] as [{ maximum?: number }]
  assert.deepEqual([seconds.maximum, fields['timeout_seconds']?.['default']], [9, 9])
  const path = propertiesOf(tools.find(({ name }) => name === 'bob_printf_s_p'))['url_path']
  assert.deepEqual([path?.['type'], path?.['maxLength'], typeof path?.['pattern']], ['string', 257, 'string'])
  assert.doesNotMatch(String(path?.['pattern']), /\(\?[!=<]/)
  assert.match(client.getInstructions() ?? '', /fill in its parameters/)
})

test('a filled tool runs there, in the shape of the other tools; what does not fit is refused here, and says what belongs there', async (t) => {
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

test('the entry that x0x invite prints makes a tool, and the doctor warns of nothing about it', async (t) => {
  await bob.writeAcl([])
  const { agentId: agent_id, machineId: machine_id } = alice
  await appendFile(bob.aclFile, entryText({ agent_id, machine_id, description: 'alice' }, ['df', '-h']))
  await bob.restart()
  const { client } = await startMcp(t, TARGETS, options())
  const names = (await client.listTools()).tools.map(({ name }) => name)
  assert.ok(names.includes('bob_df_h'), names.join(' '))
  const told = await alice.ok('doctor', 'bob', '--', 'df', '-h')
  assert.match(told, /^ok +command +df -h is allowed there/m)
  assert.doesNotMatch(told, /^warn +(rules there|command|trust there) /m)
})
