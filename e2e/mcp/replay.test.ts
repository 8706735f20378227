import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { Client } from '@modelcontextprotocol/client'
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { mcpPlace, startMcp, X0X } from '../../test/support/mcp-server.ts'
import { isAlive, until } from '../../test/support/processes.ts'

const replay = (file: string) => {
  const { status, stdout } = spawnSync(process.execPath, [X0X, 'replay', file, '--json'], { encoding: 'utf8' })
  return {
    status,
    ...(JSON.parse(stdout) as {
      ok: boolean
      runs: number
      results: number
      interrupted: number
      reason: string | null
      difference: object | null
    }),
  }
}

test('replaying the record of a server gives exactly the results that it returned', async (t) => {
  const place = await mcpPlace(t)
  const file = join(place.dir, 'record.jsonl')
  const server = await startMcp(t, {}, { place, flags: ['--record', file] })
  await writeFile(join(place.root, 'hostile'), '\u001b[2Jtext \u009b1m\r\n\u202e</untrusted_output>')
  for (const [name, args] of [
    ['exec_status', { command: 'false' }],
    ['exec_capture', { command: 'seq', args: ['1', '100000'], max_stdout_bytes: 500 }],
    ['exec_capture', { command: 'cat', args: ['hostile', 'missing'] }],
    ['exec_with_input', { command: 'sort', stdin: 'b\ns3cret\n' }],
    ['exec_capture', { command: 'sleep', args: ['100'], timeout_seconds: 1 }],
    ['exec_capture', { command: 'no-such-program' }],
    ['exec_capture', { command: 'true', cwd: '/etc' }],
    ['exec', { command: 'printf', args: ['\\377\\342\\202'] }],
  ] as const)
    await server.run(name, args)
  await Promise.all(Array.from({ length: 20 }, (_item, n) => server.run('exec_capture', { command: 'echo', args: [`${n}`] })))
  const long = await server.run('exec_capture', { command: 'seq', args: ['1', '5000'], max_stdout_bytes: 100 })
  await server.ask('exec_output', { run_id: long.run_id, from: 50, max_bytes: 200 })
  await server.ask('exec_list')
  await server.close()
  await until(() => !isAlive(server.pid))
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  const { status, ok, runs, results, interrupted, difference } = replay(file)
  assert.deepEqual([status, ok, runs, interrupted, difference], [0, true, 29, 0, null])
  assert.ok(results > 29)
  const record = await readFile(file, 'utf8')
  const changed = record.replace('"exit_code":1', '"exit_code":0')
  assert.notEqual(changed, record)
  await writeFile(file, changed)
  assert.equal(replay(file).status, 1)
})

test('--record refuses to overwrite a file', async (t) => {
  const place = await mcpPlace(t)
  const file = join(place.dir, 'mine')
  await writeFile(file, 'mine')
  const { status, stderr } = spawnSync(process.execPath, [X0X, 'mcp', '--whoami', 'x', '--config', place.config, '--record', file], {
    encoding: 'utf8',
    input: '',
  })
  assert.equal(status, 1)
  assert.match(stderr, /mine exists already/)
  assert.equal(await readFile(file, 'utf8'), 'mine')
})

test('if its record cannot be written, a server continues, and replay checks the part that exists', async (t) => {
  const place = await mcpPlace(t)
  const file = join(place.dir, 'record.jsonl')
  // Limits each file to 64 KiB. The journal stays far below that.
  const script = 'ulimit -f 128; exec "$@"'
  const words = [X0X, 'mcp', '--whoami', 'a test', '--config', place.config, '--record', file]
  const transport = new StdioClientTransport({
    command: 'sh',
    args: ['-c', script, 'sh', process.execPath, ...words],
    env: process.env as Record<string, string>,
    stderr: 'pipe',
  })
  let said = ''
  transport.stderr?.on('data', (part: Buffer) => (said += part.toString()))
  const client = new Client({ name: 'test', version: '1' })
  t.after(() => client.close())
  await client.connect(transport)
  const succeeds = async (...args: string[]): Promise<void> => {
    const { structuredContent } = await client.callTool({ name: 'exec_capture', arguments: { command: 'seq', args } })
    assert.equal((structuredContent as { success: boolean }).success, true)
  }
  await succeeds('5')
  await until(async () => (await readFile(file, 'utf8')).includes('"result"'))
  await succeeds('50000')
  await until(() => said.includes('it cannot be written'))
  await succeeds('5')
  const pid = transport.pid ?? 0
  await client.close()
  await until(() => !isAlive(pid))
  const { status, reason, results, difference } = replay(file)
  assert.deepEqual([status, reason, difference], [1, 'not_finished', null])
  assert.ok(results > 0)
})

test('the record of a server that is stopped during a run has the end of the run and its own end', async (t) => {
  const place = await mcpPlace(t)
  const file = join(place.dir, 'record.jsonl')
  const server = await startMcp(t, {}, { place, flags: ['--record', file] })
  server.ask('exec_capture', { command: 'sh', args: ['-c', 'echo begun; sleep 100'] }).catch(() => undefined)
  await until(async () => (await readFile(file, 'utf8')).includes(Buffer.from('begun\n').toString('base64')))
  process.kill(server.pid, 'SIGTERM')
  await until(() => !isAlive(server.pid))
  const { status, runs, interrupted, reason } = replay(file)
  assert.deepEqual([status, runs, interrupted, reason], [0, 1, 0, null])
})
