import assert from 'node:assert/strict'
import { test } from 'node:test'

import { quote, RexdError } from '../../src/sdk/errors.ts'
import type { Method } from '../../src/protocol/rexd/methods.ts'
import { connected } from './real-server.ts'

const refusal =
  (name: string, code: number, data: Readonly<Record<string, unknown>> = {}) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof RexdError, String(error))
    assert.deepEqual([error.name, error.code], [name, code])
    assert.notEqual(error.message, '')
    for (const [key, value] of Object.entries(data)) assert.deepEqual(error.data[key], value)
    return true
  }

test('a refusal of the server becomes an error with its code, name, message and data', async (t) => {
  const { client, session, root } = await connected(t, {
    limits: 'max_processes_per_session = 1\nmax_concurrent_sessions = 1\nhard_timeout_ms = 60000',
    security: 'deny_commands = [{ argv = ["reboot"], args = "any" }]',
  })
  const { files } = session
  const at = { session_id: session.id }
  const strange = (method: string, params: object): Promise<unknown> => client.call(method as Method, params as never)
  await assert.rejects(strange('no.such', {}), refusal('method_not_found', -32_601))
  await assert.rejects(strange('fs.stat', { ...at, path: 'a', more: 1 }), refusal('bad_request', -32_602))
  await assert.rejects(client.call('session.info', { session_id: 's_other' }), refusal('unknown_session', -32_001))
  await assert.rejects(session.run(['reboot', 'now']), refusal('command_denied', -32_001))
  await assert.rejects(session.run(['true'], { env: { LD_PRELOAD: 'x' } }), refusal('command_denied', -32_001))
  await assert.rejects(files.readText('/etc/passwd'), refusal('forbidden_path', -32_002, { path: '/etc/passwd', allowed_roots: [root] }))
  await assert.rejects(client.call('exec.wait', { ...at, process_id: 'p_other' }), refusal('unknown_process', -32_005))
  await assert.rejects(session.exec(['true'], { detach: true }), refusal('unsupported_capability', -32_007))
  await assert.rejects(client.open({ clientName: 'second' }), refusal('resource_limit', -32_008))
  await assert.rejects(session.run(['no-such-program']), refusal('file_not_found', -32_009))
  await assert.rejects(files.readText('nothing'), refusal('file_not_found', -32_009))
  await assert.rejects(files.readText('.'), refusal('file_error', -32_010))
  const process = await session.exec(['cat'], { stdinOpen: true })
  await assert.rejects(session.exec(['true']), refusal('resource_limit', -32_008, { limit: 'max_processes_per_session' }))
  await process.end()
  await assert.rejects(process.write('x'), refusal('conflict', -32_006))
  await process.exited
})

test('a session has only the capabilities, roots and limits that it requests', async (t) => {
  const { client, root } = await connected(t)
  await assert.rejects(client.open({ clientName: 'x', workspaceRoots: ['/etc'] }), refusal('forbidden_path', -32_002))
  await assert.rejects(client.open({ clientName: 'x', limits: { hardTimeoutMs: 1e9 } }), refusal('resource_limit', -32_008))
  await assert.rejects(client.open({ clientName: '' }), refusal('bad_request', -32_602))
  const session = await client.open({ clientName: 'x', workspaceRoots: [root], capabilities: ['fs.read'], limits: { maxProcesses: 2 } })
  assert.deepEqual(session.capabilities, ['fs.read', 'fs'])
  assert.equal(session.limits['max_processes_per_session'], 2)
  assert.equal(session.resumeWindowMs, null)
  await assert.rejects(session.run(['true']), refusal('unsupported_capability', -32_007))
  await assert.rejects(session.files.write('a', 'x'), refusal('unsupported_capability', -32_007))
  await session.close()
})

test('a message over the size limit is refused before it is sent, and the connection remains usable', async (t) => {
  const { client, session } = await connected(t)
  const long = 'x'.repeat(5 * 1024 * 1024)
  await assert.rejects(session.run(['echo', long]), refusal('resource_limit', -32_008, { limit: 'message' }))
  await assert.rejects(session.files.edit('a', { oldString: 'a', newString: long }), refusal('resource_limit', -32_008))
  assert.equal(client.connected, true)
  assert.equal((await session.run(['echo', 'on'])).stdoutText, 'on\n')
})

test('quoted foreign text is one short line without control characters', () => {
  assert.equal(quote(' a\r\n\u001b[31mb\u0007\u202ec \u009b2J'), 'a [31mb c  2J')
  assert.equal(quote('x'.repeat(300)).length, 201)
})
