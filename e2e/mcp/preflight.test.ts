import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { fakeDaemon, json } from '../../test/support/fake-daemon.ts'
import { mcpPlace, startMcp, type McpServer } from '../../test/support/mcp-server.ts'

/** Result of a tool that returns an object. */
const told = async ({ ask }: McpServer, name: string, args: Record<string, unknown>): Promise<Record<string, unknown>> => {
  const { isError, structuredContent, content } = await ask(name, args)
  assert.equal(isError, false, JSON.stringify(content))
  return structuredContent as Record<string, unknown>
}

test('which_command finds the program that a run would start, or says why there is none', async (t) => {
  const place = await mcpPlace(t)
  const [real, link, plain] = [join(place.root, 'tool-1'), join(place.root, 'tool'), join(place.root, 'plain')]
  await writeFile(real, '#!/bin/sh\n')
  await chmod(real, 0o755)
  await writeFile(plain, '')
  await chmod(plain, 0o644)
  await symlink(real, link)
  const server = await startMcp(t, {}, { place })
  const { duration_ms, ...found } = await told(server, 'which_command', { command: link })
  assert.ok(Number(duration_ms) >= 0)
  assert.deepEqual(found, {
    success: true,
    operation: 'which_command',
    command: link,
    args: [],
    cwd: null,
    found: true,
    path: link,
    real_path: real,
    symlink_followed: true,
    executable: true,
    searched: null,
    allowed_arguments: 'any',
    denial_reason: null,
    denial_detail: null,
    launch_error: null,
    target: null,
    detail: null,
  })
  const bare = await told(server, 'which_command', { command: 'sleep' })
  const which = spawnSync('/bin/sh', ['-c', 'command -v sleep'], {
    encoding: 'utf8',
    env: { PATH: (bare['searched'] as string[]).join(':') },
  })
  assert.equal(bare['path'], which.stdout.trim())
  const kinds = []
  for (const command of ['no-such-program-x0x', plain]) {
    const { success, found: there, path, executable, launch_error } = await told(server, 'which_command', { command })
    kinds.push([success, there, path, executable, (launch_error as { kind: string }).kind])
    assert.deepEqual(launch_error, (await server.run('exec_status', { command })).launch_error, 'as a run says it')
  }
  assert.deepEqual(kinds, [
    [false, false, null, null, 'not_found'],
    [false, false, plain, false, 'not_executable'],
  ])
})

test('which_command reports a denial, and does not reveal whether a denied program exists', async (t) => {
  const server = await startMcp(t, { security: 'allow_commands = [{ argv = ["git", "status"] }]\nallow_targets = ["bob"]' })
  for (const command of ['cat', '/etc/shadow', 'no-such-program-x0x']) {
    const { found, path, allowed_arguments, denial_reason, launch_error } = await told(server, 'which_command', { command })
    assert.deepEqual([found, path, allowed_arguments, denial_reason, launch_error], [null, null, 'none', 'command_denied', null])
  }
  assert.equal((await told(server, 'which_command', { command: 'git' }))['allowed_arguments'], 'some')
  const { isError, content } = await server.ask('which_command', { command: 'cat', target: 'eve' })
  assert.equal(isError, true)
  assert.match(JSON.stringify(content), /unsupported_capability: .*allow_targets/)
})

test('which_command shows which commands of the program a target lists', async (t) => {
  const limits = { timeout_ms: 1, max_stdout_bytes: 1, max_stderr_bytes: 1, max_stdin_bytes: 1 }
  const rules = [['git', 'status'], ['git', 'log', '-n', '<INT>'], ['uptime']].map((argv) => ({
    description: null,
    argv,
    detach: null,
    terminal: false,
    record: false,
    watch: false,
    ...limits,
  }))
  const ids = { request_id: '01890a5d-ac96-774b-bcce-b302099a8057', agent_id: 'a'.repeat(64), machine_id: 'b'.repeat(64), left_out: 0 }
  const { dir, seen } = await fakeDaemon(t, ({ path }, response) => {
    const isBob = path.endsWith('agent=bob')
    json(response, 200, { ok: isBob, denial_reason: isBob ? null : 'trust_rejected', rules: isBob ? rules : [], ...ids })
  })
  const server = await startMcp(t, { security: 'allow_targets = ["bob", "eve"]' }, { env: { X0X_DATA_DIR: dir } })
  const details = []
  for (const [command, target] of [
    ['git', 'bob'],
    ['cat', 'bob'],
    ['git', 'eve'],
  ] as const) {
    const answer = await told(server, 'which_command', { command, target })
    assert.deepEqual([answer['found'], answer['path'], answer['target'], answer['success']], [null, null, target, false])
    details.push([answer['allowed_arguments'], answer['detail']])
  }
  assert.deepEqual(details, [
    ['some', "a target does not list its programs; bob allows: git status, git log -n '<INT>'"],
    [null, 'a target does not list its programs, and no command that this target lists begins with this program; it may allow others'],
    [
      null,
      'a target does not list its programs, and this target does not list the commands that it allows (trust_rejected): exec_status runs it, or reports that it is denied or missing',
    ],
  ])
  assert.deepEqual(
    seen.map(({ method, path }) => `${method} ${path}`),
    ['bob', 'bob', 'eve'].map((name) => `GET /exec/rules?agent=${name}`),
  )
})

test('the instructions order the tools from the most limited to the most general', async (t) => {
  const { client } = await startMcp(t)
  const instructions = client.getInstructions() ?? ''
  const order = ['which_command', 'exec_status', 'exec_capture', 'exec_with_input', 'exec']
  const places = order.map((name) => instructions.search(new RegExp(`^\\d+\\. ${name}: `, 'm')))
  assert.ok(places.every((place) => place >= 0))
  assert.deepEqual(
    places,
    places.toSorted((one, other) => one - other),
  )
  assert.match(instructions, /read_file: .*\n/)
})
