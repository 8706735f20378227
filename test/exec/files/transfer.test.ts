import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'

import { NEVER } from '../../../src/base/abort.ts'
import { systemClock } from '../../../src/base/clock.ts'
import type { AppError } from '../../../src/base/errors.ts'
import { FileClient } from '../../../src/exec/files/file-client.ts'
import type { FileRange } from '../../../src/exec/files/download.ts'
import { FILE_CHUNK_BYTES } from '../../../src/protocol/api/files.ts'
import { FakeFileTarget, sha256Of, versionOf } from '../../support/fake-file-target.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { AGENT } from '../../support/rest-server.ts'

// Three chunks and some bytes.
const CONTENT = randomBytes(3 * FILE_CHUNK_BYTES + 12_345)
const BOB = { agent_id: AGENT, host: 'bob' }
const PATH = '/srv/file'
const UPLOAD = 'ab'.repeat(16)
const WHOLE: FileRange = { path: PATH, version: versionOf(CONTENT), size: CONTENT.length, offset: 0, end: CONTENT.length }

const stage = () => {
  const target = new FakeFileTarget()
  target.files.set(PATH, CONTENT)
  return { target, files: new FileClient({ runner: target, clock: systemClock }) }
}

/** Counts bytes in memory, with a limit. */
class Memory {
  held = 0
  most = 0
  readonly #max: number

  constructor(max = Infinity) {
    this.#max = max
  }

  keep(bytes: number): void {
    if (this.held + bytes > this.#max) throw new Error('no memory')
    this.held += bytes
    this.most = Math.max(this.most, this.held)
  }

  release(bytes: number): void {
    this.held -= bytes
  }
}

const turn = async (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5))

async function* inParts(bytes: Uint8Array, size = 64 * 1024): AsyncGenerator<Uint8Array, void, undefined> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

const collect = async (bytes: AsyncIterable<Uint8Array>): Promise<{ got: Buffer; error: AppError | null }> => {
  const parts: Uint8Array[] = []
  try {
    for await (const part of bytes) parts.push(part)
  } catch (error) {
    return { got: Buffer.concat(parts), error: error as AppError }
  }
  return { got: Buffer.concat(parts), error: null }
}

const failureOf = async (work: Promise<unknown>): Promise<AppError> =>
  work.then(
    () => assert.fail('it succeeded'),
    (error: unknown) => error as AppError,
  )

test('a download reads the chunks of one version in order, and verifies the hash of the file', async () => {
  const { target, files } = stage()
  const { got, error } = await collect(files.download(BOB, WHOLE, NEVER))
  assert.deepEqual([error, got.equals(CONTENT)], [null, true])
  const reads = target.of('read')
  assert.deepEqual(
    reads.map(({ offset, length }) => [offset, length]),
    [
      [0, FILE_CHUNK_BYTES],
      [FILE_CHUNK_BYTES, FILE_CHUNK_BYTES],
      [2 * FILE_CHUNK_BYTES, FILE_CHUNK_BYTES],
      [3 * FILE_CHUNK_BYTES, 12_345],
    ],
  )
  assert.ok(reads.every(({ version }) => version === WHOLE.version))
  assert.deepEqual([target.of('hash').length, target.mostAtOnce <= 3], [1, true])
})

test('an empty file is downloaded without a read', async () => {
  const { target, files } = stage()
  const { got, error } = await collect(files.download(BOB, { ...WHOLE, size: 0, end: 0 }, NEVER))
  assert.deepEqual([got.length, error, target.commands.length], [0, null, 0])
})

test('a part of a file is read without a hash', async () => {
  const { target, files } = stage()
  const range = { ...WHOLE, offset: FILE_CHUNK_BYTES - 10, end: 2 * FILE_CHUNK_BYTES }
  const { got } = await collect(files.download(BOB, range, NEVER))
  assert.ok(got.equals(CONTENT.subarray(range.offset, range.end)))
  assert.equal(target.of('hash').length, 0)
})

test('a changed byte is detected, and the last bytes are not delivered', async () => {
  const { target, files } = stage()
  target.falsify = (command, output) => {
    if (command.op !== 'read' || command.offset !== FILE_CHUNK_BYTES) return output
    const other = Buffer.from(output)
    other[7]! ^= 1
    return other
  }
  const { got, error } = await collect(files.download(BOB, WHOLE, NEVER))
  assert.deepEqual([error?.code, got.length < CONTENT.length], ['file_error', true])
})

test('missing and additional bytes are detected', async () => {
  const { target, files } = stage()
  for (const change of [(output: Buffer) => output.subarray(1), (output: Buffer) => Buffer.concat([output, Buffer.alloc(1)])]) {
    target.falsify = (command, output) => (command.op === 'read' ? change(output) : output)
    const { got, error } = await collect(files.download(BOB, WHOLE, NEVER))
    assert.deepEqual([error?.code, got.length < CONTENT.length], ['file_error', true])
  }
})

test('a file that changes during a download ends it', async () => {
  const { target, files } = stage()
  target.judge = ({ op, path }, at) => (op === 'read' && at >= 2 ? { stderr: `${path}: the file has changed (ESTALE)\n` } : null)
  const { got, error } = await collect(files.download(BOB, WHOLE, NEVER))
  assert.deepEqual([error?.data['code'], got.length < CONTENT.length], ['ESTALE', true])
})

test('a paused reader makes the target wait, and a reader that leaves frees its runs', async () => {
  const { target, files } = stage()
  const bytes = files.download(BOB, WHOLE, NEVER)
  await bytes.next()
  for (let i = 0; i < 10; i++) await turn()
  assert.equal(target.of('read').length, 2, 'no third chunk before the first is read')
  await bytes.return()
  for (let i = 0; i < 10; i++) await turn()
  const { got, error } = await collect(files.download(BOB, WHOLE, NEVER))
  assert.deepEqual([error, got.equals(CONTENT)], [null, true], 'its slots are free')
})

const upload = async (
  files: FileClient,
  bytes: AsyncIterable<Uint8Array>,
  over: { offset?: number; sha256?: string | null } = {},
  memory = new Memory(),
) => {
  const request = {
    path: PATH,
    upload: UPLOAD,
    offset: 0,
    mode: 0o640,
    mtime_ms: 5_000,
    sha256: null,
    expect: null,
    parents: true,
    ...over,
  }
  return files.upload(BOB, request, { bytes, memory }, NEVER)
}

test('an upload sends the chunks in order, and the hash of the file with the last one', async () => {
  const { target, files } = stage()
  const memory = new Memory()
  const digest = await upload(files, inParts(CONTENT), {}, memory)
  assert.deepEqual([digest.size, digest.sha256, digest.created], [CONTENT.length, sha256Of(CONTENT), false])
  assert.ok(target.files.get(PATH)!.equals(CONTENT))
  const writes = target.of('write')
  assert.deepEqual(
    writes.map(({ offset, finish }) => [offset, finish]),
    [0, 1, 2, 3].map((chunk) => [
      chunk * FILE_CHUNK_BYTES,
      chunk === 3 ? { sha256: sha256Of(CONTENT), mode: 0o640, mtime_ms: 5_000, expect: null } : null,
    ]),
  )
  assert.ok(target.mostAtOnce <= 2)
  assert.deepEqual([memory.held, memory.most <= 3 * FILE_CHUNK_BYTES], [0, true])
})

test('empty content, and content of complete chunks, end with a last chunk', async () => {
  for (const [size, writes] of [
    [0, 1],
    [1, 1],
    [FILE_CHUNK_BYTES, 1],
    [FILE_CHUNK_BYTES + 1, 2],
  ] as const) {
    const { target, files } = stage()
    const bytes = CONTENT.subarray(0, size)
    const written = await upload(files, inParts(bytes, 1_000_003))
    assert.deepEqual([written.size, written.sha256], [size, sha256Of(bytes)])
    assert.equal(target.of('write').length, writes, `${size} bytes`)
  }
})

test('a continued upload sends the rest, and needs the hash of the file', async () => {
  const { target, files } = stage()
  const offset = FILE_CHUNK_BYTES + 5
  target.uploads.set(UPLOAD, CONTENT.subarray(0, offset))
  assert.equal((await failureOf(upload(files, inParts(CONTENT.subarray(offset)), { offset }))).code, 'bad_request')
  const digest = await upload(files, inParts(CONTENT.subarray(offset)), { offset, sha256: sha256Of(CONTENT) })
  assert.deepEqual([digest.size, target.of('write')[0]?.offset], [CONTENT.length, offset])
  assert.ok(target.files.get(PATH)!.equals(CONTENT))
})

test('a given hash that differs from the content ends the upload before its last chunk', async () => {
  const { target, files } = stage()
  const error = await failureOf(upload(files, inParts(CONTENT), { sha256: '0'.repeat(64) }))
  assert.equal(error.code, 'file_error')
  assert.ok(target.of('write').every(({ finish }) => finish === null))
})

test('an agent that does not read cannot stop uploads to another agent', async () => {
  const { target, files } = stage()
  const stuck = new AbortController()
  target.before = async (command) => {
    if (command.op === 'write' && command.path === '/stuck') await new Promise((resolve) => stuck.signal.addEventListener('abort', resolve))
  }
  const of = (path: string, upload: string) => ({
    path,
    upload,
    offset: 0,
    mode: null,
    mtime_ms: null,
    sha256: null,
    expect: null,
    parents: true,
  })
  const others = Array.from({ length: 6 }, async (_, at) =>
    files.upload(BOB, of('/stuck', `${at}`.repeat(32)), { bytes: inParts(CONTENT), memory: new Memory() }, stuck.signal).catch(() => null),
  )
  const carol = { agent_id: 'c'.repeat(64), host: 'carol' }
  const written = await files.upload(carol, of('/free', UPLOAD), { bytes: inParts(CONTENT), memory: new Memory() }, NEVER)
  assert.equal(written.size, CONTENT.length)
  stuck.abort(new Error('over'))
  await Promise.all(others)
})

test('a chunk is sent when the target has started to take the previous one', async () => {
  const { target, files } = stage()
  const [begun, taken] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  // The second chunk waits for the start of the first, as on a real target.
  target.starting = async () => begun.promise
  target.before = async () => taken.promise
  const sent = upload(files, inParts(CONTENT))
  while (target.of('write').length < 1) await turn()
  for (let i = 0; i < 20; i++) await turn()
  assert.equal(target.of('write').length, 1, 'the second waits for the start of the first')
  begun.resolve()
  while (target.of('write').length < 2) await turn()
  for (let i = 0; i < 20; i++) await turn()
  assert.equal(target.of('write').length, 2, 'two at once')
  taken.resolve()
  assert.equal((await sent).size, CONTENT.length)
})

test('an error of the target ends the upload, even if the client sends no data', async () => {
  const { target, files } = stage()
  target.judge = ({ op, path }) => (op === 'write' ? { stderr: `${path}: no space left (ENOSPC)\n` } : null)
  const memory = new Memory()
  const content = (async function* () {
    yield CONTENT.subarray(0, FILE_CHUNK_BYTES + 1)
    await new Promise(() => undefined)
  })()
  const error = await failureOf(upload(files, content, {}, memory))
  assert.deepEqual([error.data['code'], memory.held], ['ENOSPC', 0])
})

test('an error of the client, or of the memory limit, ends the upload and frees its chunks', async () => {
  const { files } = stage()
  const memory = new Memory()
  const broken = (async function* () {
    yield CONTENT.subarray(0, 1_000)
    throw new Error('the client left')
  })()
  assert.deepEqual([(await failureOf(upload(files, broken, {}, memory))).message, memory.held], ['the client left', 0])
  const small = new Memory(1_000_000)
  assert.deepEqual([(await failureOf(upload(files, inParts(CONTENT), {}, small))).message, small.held], ['no memory', 0])
  const digest = await upload(files, inParts(CONTENT))
  assert.equal(digest.size, CONTENT.length, 'there is room again')
})

test('data of a slow client is sent to the target at once, so that it uses no memory', async () => {
  const [target, clock] = [new FakeFileTarget(), new ManualClock()]
  const files = new FileClient({ runner: target, clock })
  const [memory, more] = [new Memory(), Promise.withResolvers<void>()]
  const content = (async function* () {
    yield CONTENT.subarray(0, 10)
    await more.promise
    yield CONTENT.subarray(10, 30)
  })()
  const sent = upload(files, content, {}, memory)
  while (target.uploads.get(UPLOAD)?.length !== 10) await clock.advance(500)
  await clock.advance(0)
  assert.equal(memory.held, 0)
  more.resolve()
  assert.equal((await sent).size, 30)
})
