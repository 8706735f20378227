import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { type TestContext, test } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import { FileClient } from '../../../src/exec/files/file-client.ts'
import { FILE_CHUNK_BYTES } from '../../../src/protocol/api/files.ts'
import { MAX_APPEND_BYTES } from '../../../src/protocol/limits/files.ts'
import { FakeFileTarget, MTIME, sha256Of, versionOf } from '../../support/fake-file-target.ts'
import { until } from '../../support/processes.ts'
import { AGENT, readAnswer, response, restComponents, startDoor, type TestDoor } from '../../support/rest-server.ts'

const CONTENT = randomBytes(2 * FILE_CHUNK_BYTES + 3)
const ETAG = `"${versionOf(CONTENT)}"`
const FILES = `/agents/${AGENT}/files`
const FILE = `${FILES}?path=/srv/file`
const UPLOAD = 'cd'.repeat(16)

const stage = async (t: TestContext): Promise<{ target: FakeFileTarget; door: TestDoor }> => {
  const target = new FakeFileTarget()
  target.files.set('/srv/file', CONTENT)
  return { target, door: await startDoor(t, { files: new FileClient({ runner: target, clock: systemClock }) }) }
}

test("a download has the file's length, version, time and mode", async (t) => {
  const { door } = await stage(t)
  const { status, headers, bytes } = await door.call('GET', FILE)
  assert.equal(status, 200)
  assert.deepEqual(
    ['content-type', 'content-length', 'etag', 'last-modified', 'x0x-file-mode', 'x0x-file-mtime-ms', 'accept-ranges'].map(
      (name) => headers[name],
    ),
    ['application/octet-stream', String(CONTENT.length), ETAG, 'Thu, 01 Jan 1970 00:00:01 GMT', '0644', '1000', 'bytes'],
  )
  assert.ok(bytes.equals(CONTENT))
})

test('a range of a version is partial content, and a range after the end is refused', async (t) => {
  const { door, target } = await stage(t)
  const part = async (range: string, etag = ETAG) => door.call('GET', FILE, { headers: { range, 'if-match': etag } })
  const rest = await part(`bytes=${CONTENT.length - 10}-`)
  const at = CONTENT.length - 10
  assert.deepEqual([rest.status, rest.headers['content-range']], [206, `bytes ${at}-${CONTENT.length - 1}/${CONTENT.length}`])
  assert.ok(rest.bytes.equals(CONTENT.subarray(at)))
  const middle = await part('bytes=5-9')
  assert.deepEqual([middle.status, middle.bytes.equals(CONTENT.subarray(5, 10))], [206, true])
  assert.equal((await part('bytes=5-99999999999')).bytes.length, CONTENT.length - 5)
  assert.equal(target.of('hash').length, 0)
  const after = await part(`bytes=${CONTENT.length}-`)
  assert.deepEqual([after.status, after.json.error, after.headers['content-range']], [416, 'bad_range', `bytes */${CONTENT.length}`])
  // A server may ignore other forms of ranges (RFC 9110, 14.2).
  for (const other of ['bytes=-5', 'bytes=9-5', 'bytes=1-2,4-5', 'lines=1-2']) assert.equal((await part(other)).status, 200, other)
  const stale = await part('bytes=5-', '"0-0"')
  assert.deepEqual([stale.status, stale.json.error, stale.json.data.code], [409, 'file_error', 'ESTALE'])
})

test('status, digest, listing and upload state are JSON', async (t) => {
  const { door, target } = await stage(t)
  const version = versionOf(CONTENT)
  const ask = async (query: string) => (await door.call('GET', `${FILE}&${query}`)).json as object
  const facts = { type: 'file', size: CONTENT.length, mode: 0o644, mtime_ms: 1_000, mtime: MTIME, version }
  assert.deepEqual(await ask('stat=true'), { ok: true, ...facts })
  assert.deepEqual(await ask(`digest=true&version=${version}`), { ok: true, size: CONTENT.length, sha256: sha256Of(CONTENT) })
  target.uploads.set(UPLOAD, Buffer.alloc(7))
  assert.deepEqual(await ask(`upload=${UPLOAD}`), { ok: true, received: 7 })
  const entry = { path: 'a', type: 'directory', size: 0, mode: 0o755, mtime_ms: 0, mtime: MTIME }
  target.directories.add('/srv/file')
  target.falsify = () => Buffer.from(`${JSON.stringify(entry)}\n{"left_out":1}\n`)
  assert.deepEqual(await ask('list=true&recursive=true'), { ok: true, entries: [entry], left_out: 1 })
  assert.deepEqual(target.of('list'), [{ op: 'list', path: '/srv/file', recursive: true }])
})

test('an invalid request is refused before the daemon asks the agent', async (t) => {
  const { door, target } = await stage(t)
  for (const query of ['', 'path=srv', 'path=/srv/', 'path=/a/../b', 'path=/a&stat=true&list=true', 'path=/a&upload=x', 'path=/a&stat=yes'])
    assert.deepEqual([(await door.call('GET', `${FILES}?${query}`)).status, query], [400, query])
  for (const query of ['path=/a&mode=644', 'path=/a&offset=-1', 'path=/a&sha256=x', 'path=/a&mtime_ms=1.5', 'path=/a&offset=5'])
    assert.deepEqual([(await door.call('PUT', `${FILES}?${query}`, { body: 'x' })).status, query], [400, query])
  assert.equal((await door.call('POST', `${FILES}/directory`, { body: { path: 'x' } })).status, 400)
  assert.equal(target.commands.length, 0)
})

test('errors and denials have their documented status, code and data', async (t) => {
  const { door, target } = await stage(t)
  const missing = await door.call('GET', `${FILES}?path=/none`)
  assert.deepEqual([missing.status, missing.json.error, missing.json.data.code], [404, 'file_not_found', 'ENOENT'])
  target.judge = () => ({ denial_reason: 'argv_not_allowed' })
  for (const [method, path, body] of [
    ['GET', FILE, undefined],
    ['PUT', FILE, 'x'],
    ['POST', `${FILES}/directory`, { path: '/x' }],
  ] as const) {
    const { status, json } = await door.call(method, path, { body })
    assert.deepEqual([status, json.error, json.data.denial_reason], [403, 'command_denied', 'argv_not_allowed'], method)
    assert.match(json.data.next, /^Try: /)
  }
})

test('a directory cannot be downloaded as a file', async (t) => {
  const { door, target } = await stage(t)
  target.falsify = (_command, output) => Buffer.from(output.toString().replace('"file"', '"directory"'))
  const { status, json } = await door.call('GET', FILE)
  assert.deepEqual([status, json.error, json.data.code], [409, 'file_error', 'EISDIR'])
})

test('a failure before the first byte is an error, and a later one breaks the connection', async (t) => {
  const { door, target } = await stage(t)
  const stale = ({ path }: { path: string }) => ({ stderr: `${path}: the file has changed (ESTALE)\n` })
  target.judge = (command) => (command.op === 'read' && command.offset === 0 ? stale(command) : null)
  const early = await door.call('GET', FILE)
  assert.deepEqual([early.status, early.json.data.code, early.headers['content-type']], [409, 'ESTALE', 'application/json; charset=utf-8'])
  for (const fails of ['second chunk', 'digest']) {
    target.judge = (command) =>
      (fails === 'digest' ? command.op === 'hash' : command.op === 'read' && command.offset > 0) ? stale(command) : null
    const request = door.open('GET', FILE)
    request.end()
    const answer = await response(request)
    assert.equal(answer.statusCode, 200)
    await assert.rejects(readAnswer(answer), { code: 'ECONNRESET' }, fails)
  }
})

test('a client that leaves cancels the runs of its download', async (t) => {
  const { door, target } = await stage(t)
  let left = 0
  const { run } = target
  target.run = async (spec, sink, signal) => {
    signal?.addEventListener('abort', () => (left += 1), { once: true })
    return run.call(target, spec, sink, signal)
  }
  const request = door.open('GET', FILE)
  request.end()
  request.on('error', () => undefined)
  await response(request)
  request.destroy()
  await until(() => left > 0)
})

test('an upload can require a version or append to a file', async (t) => {
  const { door, target } = await stage(t)
  for (const expect of ['absent', versionOf(CONTENT)]) {
    const { status } = await door.call('PUT', `${FILE}&expect=${expect}&parents=false`, { body: 'x' })
    assert.equal(status, 200)
    const [command] = target.of('write').slice(-1)
    assert.deepEqual([command?.finish?.expect, command?.parents], [expect, false])
  }
  const append = async (query: string, body: Buffer | string) => door.call('POST', `${FILES}/append?path=/srv/file&${query}`, { body })
  assert.deepEqual((await append(`mtime=${MTIME}`, 'yz')).json, { ok: true, mtime: MTIME, mtime_ms: 1_000, created: false })
  assert.equal(target.files.get('/srv/file')?.toString(), 'xyz')
  assert.equal((await append(`mtime=${MTIME}`, Buffer.alloc(MAX_APPEND_BYTES))).status, 200)
  const { status, json } = await append(`mtime=${MTIME}`, Buffer.alloc(MAX_APPEND_BYTES + 1))
  assert.deepEqual([status, json.error], [413, 'too_large'])
  for (const wrong of ['', 'mtime=5', `mtime=${MTIME}&x=1`]) assert.equal((await append(wrong, 'x')).status, 400, wrong)
  assert.equal(target.of('append').length, 2)
})

test('a body of any content type, chunked or with a length, becomes a file', async (t) => {
  const { door, target } = await stage(t)
  const put = async (query: string, body: Buffer | string, headers: Record<string, string> = {}) =>
    door.call('PUT', `${FILES}?path=/srv/new${query}`, { body, headers })
  for (const type of ['application/octet-stream', 'application/json', 'text/plain; charset=utf-8', 'application/x-www-form-urlencoded']) {
    const { status, json } = await put('&mode=0755&mtime_ms=9', '{"no', { 'content-type': type })
    assert.deepEqual([status, json.size, json.sha256, json.mtime], [200, 4, sha256Of(Buffer.from('{"no')), MTIME], type)
  }
  assert.deepEqual(target.of('write').at(-1)?.finish, { sha256: sha256Of(Buffer.from('{"no')), mode: 0o755, mtime_ms: 9, expect: null })
  const chunked = door.open('PUT', `${FILES}?path=/srv/new`, { headers: { 'transfer-encoding': 'chunked' } })
  for (let at = 0; at < CONTENT.length; at += 1_000_003) chunked.write(CONTENT.subarray(at, at + 1_000_003))
  chunked.end()
  assert.equal((await readAnswer(await response(chunked))).json.sha256, sha256Of(CONTENT))
  assert.ok(target.files.get('/srv/new')!.equals(CONTENT))
  const empty = door.open('PUT', `${FILES}?path=/srv/empty`)
  empty.end()
  assert.deepEqual((await readAnswer(await response(empty))).json.size, 0)
  const offset = FILE_CHUNK_BYTES
  target.uploads.set(UPLOAD, CONTENT.subarray(0, offset))
  const rest = await put(`&upload=${UPLOAD}&offset=${offset}&sha256=${sha256Of(CONTENT)}`, CONTENT.subarray(offset))
  assert.deepEqual([rest.status, rest.json.size], [200, CONTENT.length])
})

test('an interrupted body creates no file, and an error arrives while the client still sends', async (t) => {
  const { door, target } = await stage(t)
  const broken = door.open('PUT', `${FILES}?path=/srv/broken`, { headers: { 'content-length': '100000000' } })
  broken.on('error', () => undefined)
  broken.write(CONTENT)
  await until(() => target.of('write').length > 0)
  broken.destroy()
  target.judge = ({ op, path }) => (op === 'write' ? { stderr: `${path}: no space left (ENOSPC)\n` } : null)
  const full = door.open('PUT', `${FILES}?path=/srv/full`, { headers: { 'content-length': '100000000' } })
  full.on('error', () => undefined)
  full.write(CONTENT)
  const { status, json } = await readAnswer(await response(full))
  assert.deepEqual([status, json.data.code], [409, 'ENOSPC'])
  full.destroy()
  assert.deepEqual([...target.files.keys()], ['/srv/file'])
})

test('a request creates a directory', async (t) => {
  const { door, target } = await stage(t)
  const { status, json } = await door.call('POST', `${FILES}/directory`, { body: { path: '/srv/new', mode: '0700' } })
  assert.deepEqual([status, json], [200, { ok: true, path: '/srv/new' }])
  await door.call('POST', `${FILES}/directory`, { body: { path: '/srv/other', mode: null } })
  assert.deepEqual(
    target.of('mkdir').map(({ path, mode }) => [path, mode]),
    [
      ['/srv/new', 0o700],
      ['/srv/other', null],
    ],
  )
})

test('a daemon that requires operator proofs copies no files', async (t) => {
  const { executor } = restComponents()
  const snapshot = { ...executor.snapshot, require_operator_proof: true }
  const target = new FakeFileTarget()
  const door = await startDoor(t, { executor: { ...executor, snapshot }, files: new FileClient({ runner: target, clock: systemClock }) })
  for (const [method, path, body] of [
    ['GET', FILE, undefined],
    ['PUT', FILE, 'x'],
    ['POST', `${FILES}/directory`, { path: '/x' }],
  ] as const)
    assert.deepEqual((await door.call(method, path, { body })).json.error, 'operator_proof_required', method)
  assert.equal(target.commands.length, 0)
})
