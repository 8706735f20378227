import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { AppError } from '../../../src/base/errors.ts'
import { NEVER } from '../../../src/base/abort.ts'
import { FileClient } from '../../../src/exec/files/file-client.ts'
import { MAX_FILE_CHUNK_BYTES } from '../../../src/protocol/limits/files.ts'
import { FakeFileTarget, MTIME } from '../../support/fake-file-target.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { AGENT } from '../../support/rest-server.ts'

const BOB = { agent_id: AGENT, host: 'bob' }
const PATH = '/srv/file'

const stage = () => {
  const [target, clock] = [new FakeFileTarget(), new ManualClock()]
  target.files.set(PATH, Buffer.from('hello'))
  return { target, clock, files: new FileClient({ runner: target, clock }) }
}

const failureOf = async (work: Promise<unknown>): Promise<AppError> =>
  work.then(
    () => assert.fail('it succeeded'),
    (error: unknown) => error as AppError,
  )

test('the answer of a file command is parsed without its unknown fields', async () => {
  const { target, files } = stage()
  target.falsify = (_command, output) => Buffer.from(output.toString().replace('{', '{"ok":false,'))
  const { version, ...facts } = await files.stat(BOB, PATH, NEVER)
  assert.deepEqual([facts, typeof version], [{ type: 'file', size: 5, mode: 0o644, mtime_ms: 1_000, mtime: MTIME }, 'string'])
})

test('a malformed answer is an error', async () => {
  const { target, files } = stage()
  for (const output of ['', '[]', '{}', '{"type":"file","size":-1}', 'x'.repeat(17 * 1024)]) {
    target.falsify = () => Buffer.from(output)
    assert.equal((await failureOf(files.stat(BOB, PATH, NEVER))).code, 'file_error', output.slice(0, 30))
  }
})

test('the error line of a failed command becomes an error with its code', async () => {
  const { target, files } = stage()
  const missing = await failureOf(files.stat(BOB, '/none', NEVER))
  assert.deepEqual(
    [missing.code, missing.data['code'], missing.message],
    ['file_not_found', 'ENOENT', '/none: no such file or directory (ENOENT)'],
  )
  target.judge = () => ({ stderr: `${PATH}: no space left (ENOSPC)\n` })
  const full = await failureOf(files.stat(BOB, PATH, NEVER))
  assert.deepEqual([full.code, full.data['code']], ['file_error', 'ENOSPC'])
})

test('a command that did not exit normally is an error, whatever it printed', async () => {
  const { target, files } = stage()
  for (const verdict of [
    { code: 1 },
    { code: 7 },
    { code: null, signal: 9 },
    { code: 143, warnings: ['duration_cap_hit' as const] },
    { truncated: true, warnings: ['stdout_cap_hit' as const] },
  ]) {
    target.judge = () => verdict
    assert.equal((await failureOf(files.stat(BOB, PATH, NEVER))).code, 'file_error', JSON.stringify(verdict))
  }
})

test('a denied file command has the fields of a denied run', async () => {
  const { target, files } = stage()
  target.judge = () => ({ denial_reason: 'argv_not_allowed' })
  const { code, message, data } = await failureOf(files.stat(BOB, PATH, NEVER))
  assert.deepEqual(
    [code, data['denial_reason'], data['agent_id'], data['argv']],
    ['command_denied', 'argv_not_allowed', AGENT, ['@stat', PATH]],
  )
  assert.match(message, /^bob denied access to \/srv\/file \(argv_not_allowed\)/)
  assert.equal(target.commands.length, 1)
})

test('a target with too many runs is asked again for up to 30 seconds', async () => {
  const { target, clock, files } = stage()
  target.judge = (_command, at) => (at < 3 ? { denial_reason: 'concurrency_limit_reached' } : null)
  const answer = files.stat(BOB, PATH, NEVER)
  for (let turn = 0; turn < 20; turn++) await clock.advance(100)
  assert.equal((await answer).size, 5)
  assert.equal(target.commands.length, 4)
  target.judge = () => ({ denial_reason: 'concurrency_limit_reached' })
  const refused = failureOf(files.stat(BOB, PATH, NEVER))
  for (let turn = 0; turn < 40; turn++) await clock.advance(1_000)
  assert.equal((await refused).data['denial_reason'], 'concurrency_limit_reached')
  assert.ok(target.commands.length < 20, `${target.commands.length} runs`)
  assert.equal(clock.pending, 0)
})

test('a command whose connection was lost is repeated for a limited time', async () => {
  const { target, clock, files } = stage()
  target.judge = (_command, at) => (at === 0 ? { incomplete: true, message: 'the connection was lost' } : null)
  const answer = files.stat(BOB, PATH, NEVER)
  for (let turn = 0; turn < 5; turn++) await clock.advance(100)
  assert.deepEqual([(await answer).size, target.commands.length], [5, 2])
  target.judge = () => ({ incomplete: true, message: 'the connection was lost' })
  const lost = failureOf(files.stat(BOB, PATH, NEVER))
  for (let turn = 0; turn < 40; turn++) await clock.advance(1_000)
  assert.deepEqual([(await lost).code, (await lost).data['incomplete']], ['peer_unreachable', true])
})

test('the wait for a slot on the target ends when its client leaves', async () => {
  const { target, clock, files } = stage()
  target.judge = () => ({ denial_reason: 'concurrency_limit_reached' })
  const leaving = new AbortController()
  const refused = failureOf(files.stat(BOB, PATH, leaving.signal))
  await clock.advance(10)
  leaving.abort(new Error('left'))
  assert.equal((await refused).message, 'left')
  assert.equal(clock.pending, 0)
})

test('at most four commands run on one agent at once, and other agents do not wait', async () => {
  const { target, files } = stage()
  const waiting = Promise.withResolvers<void>()
  target.before = async () => waiting.promise
  const asked = Array.from({ length: 10 }, async () => files.stat(BOB, PATH, NEVER))
  const other = files.stat({ agent_id: 'c'.repeat(64), host: 'carol' }, PATH, NEVER)
  await new Promise((resolve) => setImmediate(resolve))
  assert.equal(target.commands.length, 5)
  waiting.resolve()
  await Promise.all([...asked, other])
  assert.deepEqual([target.mostAtOnce, target.commands.length], [5, 11])
})

test('an append is not repeated after a lost connection', async () => {
  const { target, files } = stage()
  target.judge = (command) => (command.op === 'append' ? { incomplete: true } : null)
  const { code } = await failureOf(files.append(BOB, { path: PATH, mtime: MTIME }, Buffer.from('x'), NEVER))
  assert.deepEqual([code, target.of('append').length], ['peer_unreachable', 1])
})

test('a listing has limits for its bytes and names', async () => {
  const { target, files } = stage()
  const entry = { type: 'file', size: 1, mode: 0o600, mtime_ms: 1, mtime: MTIME }
  target.falsify = () => Buffer.from(`${JSON.stringify({ path: 'x'.repeat(4_097), ...entry })}\n{"left_out":0}\n`)
  target.directories.add('/srv')
  const list = async () => failureOf(files.list(BOB, { path: '/srv', recursive: true }, NEVER))
  assert.match((await list()).message, /leads out/)
  const line = `${JSON.stringify({ path: 'x', ...entry, padding: 'p'.repeat(25_000) })}\n`
  target.falsify = () => Buffer.from(line.repeat(Math.ceil(MAX_FILE_CHUNK_BYTES / line.length) + 1))
  assert.match((await list()).message, /too long/)
})

test('a listing must be complete and name only paths inside the directory', async () => {
  const { target, files } = stage()
  target.directories.add('/srv')
  const entry = { path: 'a/b', type: 'file', size: 1, mode: 0o600, mtime_ms: 1.5, mtime: MTIME }
  const list = async (...lines: object[]) => {
    target.falsify = () => Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join(''))
    return files.list(BOB, { path: '/srv', recursive: true }, NEVER)
  }
  assert.deepEqual(await list(entry, { left_out: 2 }), { entries: [entry], left_out: 2 })
  assert.deepEqual(await list({ left_out: 0 }), { entries: [], left_out: 0 })
  for (const path of ['../x', 'a/../b', '/etc', 'a//b', '', '.', 'a/', 'a\0b'])
    assert.equal((await failureOf(list({ ...entry, path }, { left_out: 0 }))).code, 'file_error', path)
  for (const lines of [[], [entry], [{ left_out: 0 }, entry], [{ path: 'x' }, { left_out: 0 }]])
    assert.equal((await failureOf(list(...lines))).code, 'file_error', JSON.stringify(lines))
})
