import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import type { ToolResult } from '../../src/doors/tools/tool-result.ts'
import { MAX_TOOL_STDIN } from '../../src/protocol/limits/tools.ts'
import { startMcp, X0X } from '../../test/support/mcp-server.ts'

/** Result of a command that has ended without output. */
const ended = (root: string, more: Partial<ToolResult>): ToolResult => ({
  success: true,
  operation: 'exec_capture',
  command: 'true',
  args: [],
  cwd: root,
  exit_code: 0,
  timed_out: false,
  duration_ms: 0,
  stdout: '',
  stderr: '',
  stdout_truncated: false,
  stderr_truncated: false,
  signal: null,
  denial_reason: null,
  launch_error: null,
  denial_detail: null,
  target: null,
  stdout_omitted_bytes: 0,
  stderr_omitted_bytes: 0,
  stdout_invalid_utf8: false,
  stderr_invalid_utf8: false,
  state: 'ended',
  interruption: null,
  timeout_ms: 30_000,
  timeout_clamped: false,
  run_id: null,
  ...more,
})

test('all tools that run a command return the same fields in the same order', async (t) => {
  const { run, root, client } = await startMcp(t)
  const { tools } = await client.listTools()
  for (const name of ['exec_status', 'exec_capture', 'exec_with_input', 'exec']) {
    const tool = tools.find((one) => one.name === name)
    assert.ok(tool?.outputSchema && tool.description && tool.title, name)
    assert.deepEqual(tool.annotations, { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true })
  }
  const cases: readonly [name: string, args: Record<string, unknown>, expected: Partial<ToolResult>][] = [
    ['exec_status', { command: 'true' }, {}],
    ['exec_status', { command: 'echo', args: ['x'] }, { args: ['x'], stdout_truncated: true, stdout_omitted_bytes: 2 }],
    ['exec_capture', { command: 'echo', args: ['a', 'b c'] }, { args: ['a', 'b c'], stdout: 'a b c\n' }],
    ['exec_with_input', { command: 'cat', stdin: 'hello\r\nworld' }, { stdout: 'hello\nworld' }],
    ['exec', { command: 'wc', args: ['-c'], stdin: '12345' }, { args: ['-c'], stdout: '5\n' }],
    [
      'exec_with_input',
      { command: 'wc', args: ['-c'], stdin: 'é'.repeat(MAX_TOOL_STDIN / 2) },
      { args: ['-c'], stdout: `${MAX_TOOL_STDIN}\n` },
    ],
    ['exec', { command: 'pwd', cwd: 'below' }, { cwd: join(root, 'below'), stdout: `${join(root, 'below')}\n` }],
  ]
  await mkdir(join(root, 'below'))
  for (const [name, args, expected] of cases) {
    const result = await run(name, args)
    const { duration_ms, run_id } = result
    assert.ok(duration_ms >= 0)
    // Output that exec_status omits can be read later.
    assert.equal(run_id === null, expected.stdout_omitted_bytes === undefined)
    const whole = ended(root, { operation: name, command: String(args['command']), ...expected, duration_ms, run_id })
    assert.deepEqual(result, whole)
    assert.deepEqual(Object.keys(result), Object.keys(whole))
    assert.deepEqual({ ...(await run(name, args)), duration_ms, run_id }, whole, 'equal but for its time')
  }
})

test('a command that fails, times out, cannot start or is denied reports this in its own field', async (t) => {
  const { run, ask, root, dir, lines } = await startMcp(t, { security: 'deny_commands = [{ argv = ["rm"], args = "any" }]' })
  const plain = join(dir, 'plain')
  await writeFile(plain, '')
  await chmod(plain, 0o644)
  const failed = await run('exec_status', { command: 'ls', args: ['missing'] })
  assert.match(failed.stderr, /missing/)
  assert.deepEqual([failed.success, failed.exit_code, failed.launch_error, failed.run_id], [false, 2, null, null])
  const late = await run('exec_status', { command: 'sleep', args: ['30'], timeout_seconds: 1 })
  assert.deepEqual([late.success, late.timed_out, late.exit_code, late.signal], [false, true, null, 'SIGTERM'])
  const launch = async (args: Record<string, unknown>): Promise<unknown> => {
    const { success, launch_error, exit_code, denial_reason } = await run('exec_capture', args)
    assert.deepEqual([success, exit_code], [false, null])
    return [launch_error?.kind ?? null, denial_reason]
  }
  assert.deepEqual(await launch({ command: 'no-such-program-x0x' }), ['not_found', null])
  assert.deepEqual(await launch({ command: '/no/such/program' }), ['not_found', null])
  assert.deepEqual(await launch({ command: plain }), ['not_executable', null])
  assert.deepEqual(await launch({ command: root }), ['not_executable', null])
  assert.deepEqual(await launch({ command: 'true', cwd: 'missing' }), ['config', null])
  assert.deepEqual(await launch({ command: 'no-such-program-x0x', cwd: 'missing' }), ['config', null])
  assert.deepEqual(await launch({ command: 'true', cwd: '/' }), ['config', 'forbidden_path'])
  assert.deepEqual(await launch({ command: 'rm', args: ['-r'] }), [null, 'command_denied'])
  assert.deepEqual(await launch({ command: 'true', target: 'bob' }), [null, 'unsupported_capability'])
  assert.equal((await lines()).filter(({ event }) => event === 'refused').length > 0, true)
  // exec_status does not report a failed command as an error of the call, but exec does.
  assert.deepEqual(
    await Promise.all(
      (['exec_status', 'exec'] as const).flatMap((name) =>
        ['false', 'no-such-program-x0x'].map(async (command) => (await ask(name, { command })).isError),
      ),
    ),
    [false, true, true, true],
  )
})

test('x0x mcp has help and a version, and rejects invalid options with status 2', () => {
  const x0x = (...args: string[]) => spawnSync(process.execPath, [X0X, ...args], { encoding: 'utf8', input: '' })
  assert.match(x0x('mcp', '--help').stdout, /^Usage: x0x mcp/)
  assert.match(x0x('--help').stdout, /x0x mcp --help/)
  assert.match(x0x('mcp', '--version').stdout, /^x0x mcp \d/)
  const wrong = [
    ['mcp'],
    ['mcp', '--whoami', ''],
    ['mcp', '--whoami', 'a\u001b[31m'],
    ['mcp', '--whoami', 'x'.repeat(65)],
    ['mcp', '--whoami', 'x', '--answer-within-ms', '99'],
    ['mcp', '--whoami', 'x', '--config', '/no/such/file'],
  ]
  for (const args of wrong) {
    const { status, stderr, stdout } = x0x(...args)
    assert.deepEqual([status, stdout], [2, ''], args.join(' '))
    assert.match(stderr, /whoami|answer-within-ms|no such file/)
  }
})
