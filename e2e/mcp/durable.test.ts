import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { soon } from '../../test/support/local-engine.ts'
import { mcpPlace, startMcp } from '../../test/support/mcp-server.ts'
import { isAlive } from '../../test/support/processes.ts'

const read = async (root: string, file: string): Promise<string> => readFile(join(root, file), 'utf8').catch(() => '')

test('a run whose server was killed is reported as interrupted, and its key never starts it again', async (t) => {
  const place = await mcpPlace(t)
  const idempotency_key = randomUUID()
  const asked = { command: 'sh', args: ['-c', 'echo x >> count; echo $$ > pid; exec sleep 300'], timeout_seconds: 600, idempotency_key }
  const first = await startMcp(t, {}, { place })
  await first.run('exec_capture', { ...asked, answer_within_ms: 0 })
  assert.ok(await soon(async () => (await read(place.root, 'pid')).endsWith('\n')))
  process.kill(first.pid, 'SIGKILL')
  const program = Number(await read(place.root, 'pid'))
  assert.ok(await soon(() => !isAlive(first.pid) && !isAlive(program)), 'nothing of it is left')

  const second = await startMcp(t, {}, { place })
  const answer = await second.ask('exec_capture', asked)
  const { state, success, exit_code, interruption, cwd } = answer.structuredContent as Record<string, unknown>
  assert.deepEqual([answer.isError, state, success, exit_code, cwd], [true, 'interrupted', false, null, place.root])
  assert.match(String(interruption), /^interrupted: .* check what the command did before you call with a new key$/)
  assert.deepEqual(await second.run('exec_capture', asked), answer.structuredContent)
  assert.equal(await read(place.root, 'count'), 'x\n')
  const lines = await second.lines()
  assert.deepEqual(
    lines.filter(({ event }) => ['request', 'exit', 'lost'].includes(event)).map(({ event }) => event),
    ['request', 'lost'],
  )
  assert.match(JSON.stringify(lines), /"tool":\{"operation":"exec_capture","key_sha256":"[0-9a-f]{64}","call_sha256":"[0-9a-f]{64}"\}/)
  assert.ok(!JSON.stringify(lines).includes(idempotency_key))
  // A new key starts a new run.
  const again = { command: 'sh', args: ['-c', 'echo x >> count'] }
  assert.equal((await second.run('exec_status', { ...again, idempotency_key: randomUUID() })).success, true)
  assert.equal(await read(place.root, 'count'), 'x\nx\n')
})

test('the journal has each call of a tool with its command and its result', async (t) => {
  const server = await startMcp(t, { security: 'deny_commands = [{ argv = ["rm"], args = "any" }]' })
  await server.run('exec_status', { command: 'true' })
  await server.run('exec_with_input', { command: 'cat', stdin: 'secret' })
  await server.run('exec_capture', { command: 'no-such-program-x0x' })
  await server.run('exec_capture', { command: 'true', cwd: 'missing' })
  await server.run('exec', { command: 'rm', args: ['x'] })
  const told = (await server.lines()).flatMap((line): unknown[][] => {
    if (line.event === 'request' && 'tool' in line) return [[line.event, line.tool?.operation, line.argv.join(' ')]]
    if (line.event === 'refused') return [[line.event, line.method, line.argv?.join(' '), line.code]]
    return line.event === 'exit' ? [[line.event, line.code]] : []
  })
  assert.deepEqual(told, [
    ['request', 'exec_status', 'true'],
    ['exit', 0],
    ['request', 'exec_with_input', 'cat'],
    ['exit', 0],
    ['refused', 'exec_capture', 'no-such-program-x0x', 'file_not_found'],
    ['refused', 'exec_capture', 'true', 'file_not_found'],
    ['refused', 'exec', 'rm x', 'command_denied'],
  ])
  assert.ok(!JSON.stringify(await server.lines()).includes('secret'))
})

test('a key whose command runs on another server of the same name reports that run and later its result', async (t) => {
  const place = await mcpPlace(t)
  const asked = {
    command: 'sh',
    args: ['-c', 'echo x >> count; while [ ! -e go ]; do sleep 0.05; done; exit 3'],
    timeout_seconds: 60,
    idempotency_key: randomUUID(),
  }
  const [first, second] = [await startMcp(t, {}, { place }), await startMcp(t, {}, { place })]
  // After this call, each server has read the journal.
  for (const server of [first, second])
    assert.equal((await server.run('exec_status', { command: 'true', idempotency_key: randomUUID() })).success, true)
  await first.run('exec_status', { ...asked, answer_within_ms: 0 })
  assert.ok(await soon(async () => (await read(place.root, 'count')) === 'x\n'))
  const answer = await second.ask('exec_status', asked)
  const { state, success, exit_code, run_id, interruption } = answer.structuredContent as Record<string, unknown>
  assert.deepEqual([answer.isError, state, success, exit_code, run_id], [false, 'running', false, null, null])
  assert.equal(interruption, 'another server of this name runs it: call again with the same key to get the result')
  assert.equal((await second.run('exec_status', { ...asked, command: 'true', args: [] })).denial_reason, 'conflict')
  await writeFile(join(place.root, 'go'), '')
  let ended = await second.run('exec_status', asked)
  assert.ok(await soon(async () => (ended = await second.run('exec_status', asked)).state === 'ended'))
  assert.deepEqual([ended.exit_code, ended.interruption], [3, null])
  assert.deepEqual(await first.run('exec_status', asked), ended)
  assert.equal(await read(place.root, 'count'), 'x\n')
})
