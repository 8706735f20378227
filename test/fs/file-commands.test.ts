import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { chmod, link, mkdir, open, readFile, rm, stat, symlink, truncate, utimes, writeFile } from 'node:fs/promises'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'

import { type Clock, systemClock } from '../../src/base/clock.ts'
import { TimeSlicer } from '../../src/base/time-slices.ts'
import { failureLine, performFileCommand } from '../../src/fs/file-commands.ts'
import { giveMade } from '../../src/fs/beneath.ts'
import { holdRoot } from '../../src/fs/open-file.ts'
import { type UploadLimits, Uploads } from '../../src/fs/uploads.ts'
import {
  type FileChange,
  type FileCommand,
  type FileFacts,
  type WrittenFile,
  changesFiles,
  fileCommandArgv,
  parseFileCommand,
  readFileError,
} from '../../src/protocol/file-command.ts'
import { MAX_APPEND_BYTES, UPLOAD_EXPIRES_MS, UPLOAD_WAIT_MS } from '../../src/protocol/limits/files.ts'
import { everythingIn, fileScene, type Scene } from '../support/file-permit.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { hasProc, until } from '../support/processes.ts'

const linuxOnly = hasProc ? {} : { skip: 'needs /proc' }
const UPLOAD = 'a'.repeat(32)
const OTHER_UPLOAD = 'b'.repeat(32)
const LIMITS: UploadLimits = { create_dirs: false, max_file_bytes: 1_000_000, max_total_bytes: null, mode: 0o644, account: null }
const sha256 = (data: Uint8Array): string => createHash('sha256').update(data).digest('hex')

interface Outcome {
  readonly stdout: Buffer
  /** Code of the failure, or null. */
  readonly code: string | null
}

interface Files extends Scene {
  readonly uploads: Uploads
  run(
    command: FileCommand,
    options?: { stdin?: Iterable<Uint8Array> | AsyncIterable<Uint8Array>; limits?: Partial<UploadLimits>; owner?: string },
  ): Promise<Outcome>
}

const filesOf = async (t: TestContext, clock: Clock = systemClock): Promise<Files> => {
  const scene = await fileScene(t)
  const uploads = new Uploads({ clock })
  t.after(() => uploads.stop())
  const sharing = new TimeSlicer({ clock: systemClock })
  const run: Files['run'] = async (command, { stdin = [], limits = {}, owner = 'bob' } = {}) => {
    const parsed = parseFileCommand(fileCommandArgv(command))
    assert.deepEqual(parsed, command)
    const below = command.path.slice(scene.inside.length + 1)
    const files = scene.permit(below, changesFiles(command) ? 'write' : 'read')
    const output: Uint8Array[] = []
    const source = async function* (): AsyncGenerator<Uint8Array> {
      yield* stdin
    }
    const streams = {
      stdin: source(),
      share: sharing.share(AbortSignal.timeout(60_000)),
      write: async (data: Uint8Array) => void output.push(data),
    }
    let code: string | null = null
    try {
      await performFileCommand({ command, files, owner, limits: { ...LIMITS, ...limits } }, streams, uploads)
    } catch (error) {
      const line = failureLine(error, command.path)
      assert.ok(line.startsWith(`${command.path}: `) && !line.includes('/proc/'), line)
      code = readFileError(line)?.code ?? line
    }
    return { stdout: Buffer.concat(output), code }
  }
  return { ...scene, uploads, run }
}

const statusOf = async ({ run }: Files, path: string): Promise<FileFacts> =>
  JSON.parse((await run({ op: 'stat', path })).stdout.toString()) as FileFacts

/** One `@write` that is a whole file. */
const wholeWrite = (path: string, data: Uint8Array, fields: { mode?: number; mtime_ms?: number } = {}): FileCommand => ({
  op: 'write',
  path,
  upload: UPLOAD,
  offset: 0,
  finish: { sha256: sha256(data), mode: fields.mode ?? null, mtime_ms: fields.mtime_ms ?? null, expect: null },
  parents: true,
})

test('a client reads a file in parts, and gets its status and its hash', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'data')
  const data = randomBytes(1_500_000)
  await writeFile(path, data, { mode: 0o640 })
  const { version, ...status } = await statusOf(files, path)
  assert.deepEqual([status.type, status.size, status.mode], ['file', data.length, 0o640])
  const parts = await Promise.all(
    [0, 700_000, 1_400_000].map(async (offset) => (await files.run({ op: 'read', path, offset, length: 700_000, version })).stdout),
  )
  assert.ok(Buffer.concat(parts).equals(data))
  assert.deepEqual(JSON.parse((await files.run({ op: 'hash', path, version })).stdout.toString()), {
    size: data.length,
    sha256: sha256(data),
  })
  assert.deepEqual(await files.run({ op: 'read', path, offset: data.length, length: 10, version }), { stdout: Buffer.alloc(0), code: null })
})

test('a file that changed since its status is an error', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'data')
  for (const change of [
    async () => writeFile(path, 'other'),
    async () => chmod(path, 0o600),
    async () => utimes(path, 1, 1),
    async () => truncate(path, 1),
    async () => rm(path).then(async () => writeFile(path, 'first')),
  ]) {
    await writeFile(path, 'first')
    const { version } = await statusOf(files, path)
    await change()
    const { code, stdout } = await files.run({ op: 'read', path, offset: 0, length: 10, version })
    assert.deepEqual([code, stdout.length], ['ESTALE', 0])
    assert.equal((await files.run({ op: 'hash', path, version })).code, 'ESTALE')
  }
})

test('a read refuses everything except regular files, and links that lead outside the root', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const at = (name: string): string => join(files.inside, name)
  await writeFile(join(files.outside, 'secret'), 'secret')
  await symlink(join(files.outside, 'secret'), at('link'))
  await symlink('../app2', at('way'))
  await symlink('data', at('inner'))
  await writeFile(at('data'), 'data')
  assert.equal(spawnSync('mkfifo', [at('pipe')]).status, 0)
  const read = async (path: string): Promise<string | null> => {
    const { code, stdout } = await files.run({ op: 'read', path, offset: 0, length: 100, version: null })
    return code ?? stdout.toString()
  }
  assert.equal(await read(at('inner')), 'data')
  assert.equal(await read(at('link')), 'forbidden_path')
  assert.equal(await read(at('way/secret')), 'forbidden_path')
  assert.equal(await read(at('pipe')), 'EINVAL')
  assert.equal(await read(files.inside), 'EISDIR')
  assert.equal(await read(at('none')), 'ENOENT')
  for (const op of ['stat', 'hash'] as const) {
    const command: FileCommand = op === 'stat' ? { op, path: at('link') } : { op, path: at('link'), version: null }
    assert.equal((await files.run(command)).code, 'forbidden_path')
  }
})

test('a listing describes the entries below a directory and never follows a link', linuxOnly, async (t) => {
  const files = await filesOf(t)
  await mkdir(join(files.inside, 'sub'))
  await writeFile(join(files.inside, 'sub/a\nb'), '12')
  await symlink(files.outside, join(files.inside, 'out'))
  await writeFile(join(files.outside, 'secret'), 'x')
  await writeFile(Buffer.concat([Buffer.from(`${files.inside}/`), Buffer.from([0xff, 0xfe])]), 'not UTF-8')
  const list = async (recursive: boolean): Promise<Record<string, unknown>[]> =>
    (await files.run({ op: 'list', path: files.inside, recursive })).stdout
      .toString()
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>)
  const plain = await list(false)
  assert.deepEqual(plain.map(({ path }) => path).toSorted(), ['out', 'sub', undefined])
  const whole = await list(true)
  assert.deepEqual(whole.map(({ path }) => path).toSorted(), ['out', 'sub', 'sub/a\nb', undefined])
  assert.deepEqual(whole.find(({ path }) => path === 'out')?.['type'], 'symlink')
  assert.deepEqual(whole.find(({ path }) => path === 'sub/a\nb')?.['size'], 2)
  // The name that is not UTF-8 is counted.
  assert.deepEqual(whole.at(-1), { left_out: 1 })
  assert.equal((await files.run({ op: 'list', path: join(files.inside, 'sub/a\nb'), recursive: false })).code, 'ENOTDIR')
})

test('an upload creates the whole file with the mode of the ACL, and leaves no other file', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'new')
  const data = randomBytes(100_000)
  const written = await files.run(wholeWrite(path, data, { mtime_ms: 1_234_567 }), {
    stdin: [data.subarray(0, 60_000), data.subarray(60_000)],
  })
  const { mtime, mtime_ms } = await statusOf(files, path)
  const expected = { size: data.length, sha256: sha256(data), mtime, mtime_ms, created: true }
  assert.deepEqual([written.code, JSON.parse(written.stdout.toString())], [null, expected])
  assert.ok((await readFile(path)).equals(data))
  const { mode, mtimeMs } = await stat(path)
  assert.deepEqual([mode & 0o7777, mtimeMs], [0o644, 1_234_567])
  // A requester can only take rights away.
  await files.run(wholeWrite(join(files.inside, 'wide'), data, { mode: 0o4777 }), { stdin: [data] })
  assert.equal((await stat(join(files.inside, 'wide'))).mode & 0o7777, 0o644)
  await files.run(wholeWrite(join(files.inside, 'narrow'), data, { mode: 0o600 }), { stdin: [data] })
  assert.equal((await stat(join(files.inside, 'narrow'))).mode & 0o7777, 0o600)
  assert.deepEqual(await everythingIn(files.inside), ['narrow', 'new', 'wide'])
})

test('zeros replace the bytes that an earlier attempt has left', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'file')
  const [ones, zeros] = [Buffer.alloc(200_000, 1), Buffer.alloc(200_000)]
  const first = { ...(wholeWrite(path, ones) as Extract<FileCommand, { op: 'write' }>), finish: null }
  assert.equal((await files.run(first, { stdin: [ones] })).code, null)
  assert.equal((await files.run(wholeWrite(path, zeros), { stdin: [zeros.subarray(0, 61_440), zeros.subarray(61_440)] })).code, null)
  assert.ok((await readFile(path)).equals(zeros))
})

test('a file that is replaced keeps exactly its mode', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'file')
  for (const mode of [0o640, 0o660, 0o775, 0o600]) {
    await writeFile(path, 'old')
    await chmod(path, mode)
    assert.equal((await files.run(wholeWrite(path, Buffer.from('new')), { stdin: [Buffer.from('new')] })).code, null)
    assert.deepEqual([(await stat(path)).mode & 0o777, await readFile(path, 'utf8')], [mode, 'new'])
  }
})

test('a write is refused if an unreadable directory prevents counting the bytes of all files', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const write = async (name: string) =>
    files.run(wholeWrite(join(files.inside, name), Buffer.from('x')), { stdin: [Buffer.from('x')], limits: { max_total_bytes: 1_000 } })
  assert.equal((await write('first')).code, null)
  await mkdir(join(files.inside, 'hidden'), { mode: 0o300 })
  // Root can read this directory.
  assert.equal((await write('second')).code, process.getuid!() === 0 ? null : 'resource_limit')
  await chmod(join(files.inside, 'hidden'), 0o700)
})

test('a file is replaced only if it is the expected one, also when it changes during the upload', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'file')
  const write = (expect: string, upload = UPLOAD): FileCommand => {
    const command = wholeWrite(path, Buffer.from('new')) as Extract<FileCommand, { op: 'write' }>
    return { ...command, upload, finish: { ...command.finish!, expect } }
  }
  const stdin = [Buffer.from('new')]
  assert.equal((await files.run(write('1.2.3'), { stdin })).code, 'ESTALE')
  assert.equal((await files.run(write('absent'), { stdin })).code, null)
  assert.equal((await files.run(write('absent', OTHER_UPLOAD), { stdin })).code, 'EEXIST')
  const { version } = await statusOf(files, path)
  async function* late(): AsyncGenerator<Uint8Array> {
    yield Buffer.from('n')
    await writeFile(path, 'other')
    yield Buffer.from('ew')
  }
  assert.equal((await files.run(write(version, OTHER_UPLOAD), { stdin: late() })).code, 'ESTALE')
  assert.equal(await readFile(path, 'utf8'), 'other')
  const now = await statusOf(files, path)
  assert.equal((await files.run(write(now.version, OTHER_UPLOAD), { stdin })).code, null)
  assert.deepEqual([await readFile(path, 'utf8'), await everythingIn(files.inside)], ['new', ['file']])
})

test('an upload in several commands that is refused at its end leaves no partial file', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'file')
  const data = randomBytes(100_000)
  await writeFile(path, 'old')
  const whole = wholeWrite(path, data) as Extract<FileCommand, { op: 'write' }>
  for (const [expect, code] of [
    ['absent', 'EEXIST'],
    ['1.2.3', 'ESTALE'],
  ] as const) {
    assert.equal((await files.run({ ...whole, finish: null }, { stdin: [data.subarray(0, 60_000)] })).code, null)
    const last = { ...whole, offset: 60_000, finish: { ...whole.finish!, expect } }
    assert.equal((await files.run(last, { stdin: [data.subarray(60_000)] })).code, code)
    assert.deepEqual([await readFile(path, 'utf8'), await everythingIn(files.inside)], ['old', ['file']])
  }
})

test('a later write searches a directory again and removes uploads that have expired', linuxOnly, async (t) => {
  const clock = new ManualClock(Date.now())
  const files = await filesOf(t, clock)
  const write = async (name: string, finish = true): Promise<void> => {
    const whole = wholeWrite(join(files.inside, name), Buffer.from('x')) as Extract<FileCommand, { op: 'write' }>
    assert.equal((await files.run(finish ? whole : { ...whole, finish: null }, { stdin: [Buffer.from('x')] })).code, null)
  }
  // The partial file of an earlier daemon, which is young at the first search.
  const earlier = new Uploads({ clock: systemClock })
  t.after(() => earlier.stop())
  const share = new TimeSlicer({ clock: systemClock }).share(AbortSignal.timeout(60_000))
  const stdin = (async function* () {
    yield Buffer.from('x')
  })()
  const begun = wholeWrite(join(files.inside, 'begun'), Buffer.from('xy')) as Extract<FileCommand, { op: 'write' }>
  await earlier.write({ files: files.permit('begun', 'write'), limits: LIMITS, owner: 'bob' }, { ...begun, finish: null }, { stdin, share })
  await write('one')
  assert.equal((await everythingIn(files.inside)).length, 2)
  await clock.advance(UPLOAD_EXPIRES_MS + 60_000)
  await write('two')
  assert.deepEqual((await everythingIn(files.inside)).toSorted(), ['one', 'two'])
})

test('two commands that make one directory at once both succeed', linuxOnly, async (t) => {
  const files = await filesOf(t)
  for (let round = 0; round < 20; round++) {
    const command: FileCommand = { op: 'mkdir', path: join(files.inside, `d${round}`), mode: null }
    const made = await Promise.all(Array.from({ length: 4 }, async () => files.run(command, { limits: { create_dirs: true } })))
    assert.deepEqual(new Set(made.map(({ code }) => code)), new Set([null]))
  }
})

test('directories are made only if the command and the ACL say so', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const command = wholeWrite(join(files.inside, 'a/b'), Buffer.from('x')) as Extract<FileCommand, { op: 'write' }>
  const stdin = [Buffer.from('x')]
  assert.equal((await files.run({ ...command, parents: false }, { stdin, limits: { create_dirs: true } })).code, 'ENOENT')
  assert.equal((await files.run(command, { stdin, limits: { create_dirs: false } })).code, 'ENOENT')
  assert.equal((await files.run(command, { stdin, limits: { create_dirs: true } })).code, null)
})

test('bytes are appended only to a file with the expected time, and only within the limits', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'log')
  const append = async (mtime: string, data: Uint8Array, limits = {}) => files.run({ op: 'append', path, mtime }, { stdin: [data], limits })
  assert.equal((await append('2026-01-01T00:00:00.000000000Z', Buffer.from('x'))).code, 'ENOENT')
  await writeFile(path, 'one')
  const { mtime } = await statusOf(files, path)
  const answer = await append(mtime, Buffer.from('two'))
  assert.equal(answer.code, null)
  const change = JSON.parse(answer.stdout.toString()) as FileChange
  assert.deepEqual([change.created, change.mtime], [false, (await statusOf(files, path)).mtime])
  // The same command twice: the second one finds another time.
  assert.equal((await append(mtime, Buffer.from('two'))).code, 'ESTALE')
  assert.equal((await append(change.mtime, Buffer.alloc(5), { max_file_bytes: 10 })).code, 'EFBIG')
  assert.equal((await append(change.mtime, Buffer.alloc(5), { max_total_bytes: 10 })).code, 'EDQUOT')
  assert.equal((await append(change.mtime, Buffer.alloc(MAX_APPEND_BYTES + 1), { max_file_bytes: 2 * MAX_APPEND_BYTES })).code, 'EFBIG')
  assert.equal((await files.run({ op: 'append', path: files.inside, mtime }, { stdin: [] })).code, 'EISDIR')
  assert.equal(await readFile(path, 'utf8'), 'onetwo')
  assert.equal((await append(change.mtime, Buffer.alloc(4), { max_file_bytes: 10, max_total_bytes: 10 })).code, null)
})

test('several commands upload one file, even if they arrive in the wrong order', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'new')
  const data = randomBytes(300_000)
  const part = (offset: number, finish: boolean): FileCommand => ({
    ...(wholeWrite(path, data) as Extract<FileCommand, { op: 'write' }>),
    offset,
    ...(finish ? {} : { finish: null }),
  })
  const last = files.run(part(200_000, true), { stdin: [data.subarray(200_000)] })
  const second = files.run(part(100_000, false), { stdin: [data.subarray(100_000, 200_000)] })
  assert.deepEqual(JSON.parse((await files.run(part(0, false), { stdin: [data.subarray(0, 100_000)] })).stdout.toString()), {
    received: 100_000,
  })
  assert.deepEqual(JSON.parse((await second).stdout.toString()), { received: 200_000 })
  assert.equal((await last).code, null)
  assert.ok((await readFile(path)).equals(data))
})

test('a repeated last command succeeds if the file already has the same content', linuxOnly, async (t) => {
  const clock = new ManualClock()
  const files = await filesOf(t, clock)
  const path = join(files.inside, 'new')
  const data = randomBytes(50_000)
  await writeFile(path, data)
  const repeated = async (content: Buffer): Promise<Outcome> => {
    const command = { ...(wholeWrite(path, content) as Extract<FileCommand, { op: 'write' }>), offset: 40_000 }
    const outcome = files.run(command, { stdin: [content.subarray(40_000)] })
    // One timer removes expired uploads, the other ends the wait.
    await until(() => clock.pending >= 2)
    await clock.advance(UPLOAD_WAIT_MS)
    return outcome
  }
  const { code, stdout } = await repeated(data)
  const written = JSON.parse(stdout.toString()) as WrittenFile
  assert.deepEqual([code, written.size, written.sha256], [null, data.length, sha256(data)])
  assert.equal((await repeated(randomBytes(50_000))).code, 'ESPIPE')
})

/** A source of stdin that reports when it is read, and then waits. */
const heldStdin = (data: Buffer) => {
  const [begun, rest] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const chunks = (async function* () {
    yield data.subarray(0, 1_000)
    begun.resolve()
    await rest.promise
    yield data.subarray(1_000)
  })()
  return { chunks, begun: begun.promise, goOn: rest.resolve }
}

test('a last command that arrives again while the first one runs gets the same answer', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'new')
  const data = randomBytes(50_000)
  const command = wholeWrite(path, data)
  const stdin = heldStdin(data)
  const first = files.run(command, { stdin: stdin.chunks })
  await stdin.begun
  const second = files.run(command, { stdin: [data] })
  stdin.goOn()
  const [one, two] = await Promise.all([first, second])
  assert.deepEqual([one.code, two.code, two.stdout.toString()], [null, null, one.stdout.toString()])
  assert.deepEqual(await everythingIn(files.inside), ['new'])
})

test('a repeated part of an upload keeps the parts after it', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'new')
  const data = randomBytes(90_000)
  const part = async (offset: number, length: number, finish = false): Promise<string> => {
    const whole = wholeWrite(path, data) as Extract<FileCommand, { op: 'write' }>
    const command = { ...whole, offset, ...(finish ? {} : { finish: null }) }
    const { code, stdout } = await files.run(command, { stdin: [data.subarray(offset, offset + length)] })
    return code ?? stdout.toString()
  }
  await part(0, 30_000)
  await part(30_000, 30_000)
  assert.equal(await part(0, 30_000), '{"received":30000}\n')
  assert.match(await part(60_000, 30_000, true), /"size":90000/)
  assert.ok((await readFile(path)).equals(data))
})

test('unfinished files count for the limit of all files', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const data = randomBytes(40_000)
  const limits = { max_total_bytes: 100_000 }
  const codes = []
  for (const name of ['a', 'b', 'c']) {
    const command: FileCommand = { op: 'write', path: join(files.inside, name), upload: UPLOAD, offset: 0, parents: true, finish: null }
    codes.push((await files.run(command, { stdin: [data], limits })).code)
  }
  assert.deepEqual([codes, (await everythingIn(files.inside)).length], [[null, null, 'EDQUOT'], 2])
})

test('an upload continues after a restart, but only for its requester', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'new')
  const data = randomBytes(100_000)
  const first: FileCommand = { op: 'write', path, upload: UPLOAD, offset: 0, parents: true, finish: null }
  await files.run(first, { stdin: [data.subarray(0, 40_000)] })
  const [partial] = await everythingIn(files.inside)
  assert.match(partial!, /^\.x0x-[0-9a-f]{32}\.part$/)
  assert.equal((await stat(join(files.inside, partial!))).mode & 0o7777, 0o600)
  const received = async (owner: string, others = files): Promise<unknown> =>
    JSON.parse((await others.run({ op: 'upload', path, upload: UPLOAD }, { owner })).stdout.toString())
  assert.deepEqual([await received('bob'), await received('carol')], [{ received: 40_000 }, { received: 0 }])
  // Another daemon knows only the partial file.
  const uploads = new Uploads({ clock: systemClock })
  t.after(() => uploads.stop())
  const again = { ...files, uploads }
  assert.deepEqual(await received('bob', again), { received: 40_000 })
  const rest = { ...(wholeWrite(path, data) as Extract<FileCommand, { op: 'write' }>), offset: 40_000 }
  assert.equal((await files.run(rest, { stdin: [data.subarray(40_000)] })).code, null)
  assert.ok((await readFile(path)).equals(data))
  assert.deepEqual(await everythingIn(files.inside), ['new'])
})

test('a wrong hash, an exceeded limit or an invalid place leaves the old file unchanged', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'old')
  await writeFile(path, 'old', { mode: 0o600 })
  const data = Buffer.from('new content')
  const wrong = { ...(wholeWrite(path, Buffer.from('else')) as Extract<FileCommand, { op: 'write' }>) }
  assert.equal((await files.run(wrong, { stdin: [data] })).code, 'EBADMSG')
  assert.deepEqual(await everythingIn(files.inside), ['old'])
  assert.equal((await files.run(wholeWrite(path, data), { stdin: [data], limits: { max_file_bytes: data.length - 1 } })).code, 'EFBIG')
  assert.equal((await files.run(wholeWrite(path, data), { stdin: [data], limits: { max_total_bytes: data.length - 1 } })).code, 'EDQUOT')
  assert.equal(await readFile(path, 'utf8'), 'old')
  assert.equal((await files.run(wholeWrite(path, data), { stdin: [data], limits: { max_file_bytes: data.length } })).code, null)
  // The replaced file keeps its rights.
  assert.deepEqual([await readFile(path, 'utf8'), (await stat(path)).mode & 0o777], ['new content', 0o600])
  await mkdir(join(files.inside, 'directory'))
  assert.equal((await files.run(wholeWrite(join(files.inside, 'directory'), data), { stdin: [data] })).code, 'EISDIR')
  assert.equal((await files.run(wholeWrite(join(files.inside, 'none/new'), data), { stdin: [data] })).code, 'ENOENT')
  assert.equal((await files.run(wholeWrite(join(files.inside, 'n'.repeat(300)), data), { stdin: [data] })).code, 'ENAMETOOLONG')
  assert.equal(spawnSync('mkfifo', [join(files.inside, 'pipe')]).status, 0)
  assert.equal((await files.run(wholeWrite(join(files.inside, 'pipe'), data), { stdin: [data] })).code, 'EINVAL')
})

test('an upload replaces a hard link to a file outside the root, and does not write that file', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const outside = join(files.outside, 'file')
  await writeFile(outside, 'outside')
  await link(outside, join(files.inside, 'file'))
  const data = Buffer.from('new')
  assert.equal((await files.run(wholeWrite(join(files.inside, 'file'), data), { stdin: [data] })).code, null)
  assert.deepEqual([await readFile(outside, 'utf8'), await readFile(join(files.inside, 'file'), 'utf8')], ['outside', 'new'])
  await symlink(files.outside, join(files.inside, 'way'))
  assert.equal((await files.run(wholeWrite(join(files.inside, 'way/new'), data), { stdin: [data] })).code, 'forbidden_path')
  assert.deepEqual(await everythingIn(files.outside), ['file'])
})

test('an upload does not use a partial file that this daemon did not create', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'new')
  await files.run({ op: 'write', path, upload: UPLOAD, offset: 0, parents: true, finish: null }, { stdin: [Buffer.from('a')] })
  const [partial] = await everythingIn(files.inside)
  const place = join(files.inside, partial!)
  const data = Buffer.from('data')
  for (const put of [
    async () => symlink(join(files.outside, 'target'), place),
    async () => writeFile(place, '', { mode: 0o600 }).then(async () => chmod(place, 0o666)),
    async () => writeFile(join(files.outside, 'other'), 'x', { mode: 0o600 }).then(async () => link(join(files.outside, 'other'), place)),
  ]) {
    await rm(place)
    await put()
    assert.match(String((await files.run(wholeWrite(path, data), { stdin: [data] })).code), /^(ELOOP|EPERM)$/)
  }
  assert.deepEqual(await everythingIn(files.outside), ['other'])
})

test('uploads and mkdir create directories whose rights follow from the mode of the ACL', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const at = (name: string): string => join(files.inside, name)
  const data = Buffer.from('x')
  const limits = { create_dirs: true, mode: 0o640 }
  assert.equal((await files.run(wholeWrite(at('a/b/c'), data), { stdin: [data], limits })).code, null)
  assert.equal((await files.run({ op: 'mkdir', path: at('d'), mode: null }, { limits })).code, null)
  assert.equal((await files.run({ op: 'mkdir', path: at('d'), mode: null }, { limits })).code, null)
  assert.equal((await stat(at('d'))).mode & 0o777, 0o750)
  assert.deepEqual([(await stat(at('a'))).mode & 0o777, (await stat(at('a/b'))).mode & 0o777], [0o750, 0o750])
  assert.equal((await files.run({ op: 'upload', path: at('e/f'), upload: UPLOAD }, { limits })).code, null)
  assert.ok(!(await everythingIn(files.inside)).includes('e'))
  assert.equal((await files.run({ op: 'mkdir', path: at('a/b/c'), mode: null }, { limits })).code, 'EEXIST')
})

test('a link that replaces a new directory is not followed', linuxOnly, async (t) => {
  const files = await filesOf(t)
  await mkdir(join(files.outside, 'secret'), { mode: 0o700 })
  await symlink(join(files.outside, 'secret'), join(files.inside, 'new'))
  using root = await holdRoot(files.root)
  await assert.rejects(giveMade([{ parent: root!, name: 'new' }], { mode: 0o777, account: null }), { code: 'ENOTDIR' })
  assert.equal((await stat(join(files.outside, 'secret'))).mode & 0o777, 0o700)
})

test('a sparse file stays sparse', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const path = join(files.inside, 'sparse')
  const frame = Buffer.alloc(61_440)
  // Frames that arrive together come as one buffer.
  const frames = [...Array<Buffer>(93).fill(frame), Buffer.alloc(6 * 61_440), Buffer.from('end'), Buffer.alloc(5)]
  const limits = { max_file_bytes: 10_000_000 }
  assert.equal((await files.run(wholeWrite(path, Buffer.concat(frames)), { stdin: frames, limits })).code, null)
  const { size, blocks } = await stat(path)
  assert.ok(size === 99 * 61_440 + 8 && blocks * 512 < 100_000, `${blocks} blocks`)
  assert.ok((await readFile(path)).equals(Buffer.concat(frames)))
})

test('unfinished uploads are limited for each requester, and expire', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const begin = async (index: number, owner: string): Promise<string | null> =>
    (
      await files.run(
        { op: 'write', path: join(files.inside, `f${index}`), upload: UPLOAD, offset: 0, parents: true, finish: null },
        { owner, stdin: [Buffer.from('x')] },
      )
    ).code
  const codes = []
  for (let index = 0; index < 70; index++) codes.push(await begin(index, 'bob'))
  assert.deepEqual([codes.slice(0, 64).every((code) => code === null), codes.slice(64).every((code) => code === 'EDQUOT')], [true, true])
  assert.equal(await begin(100, 'carol'), null)
  // Partial files of an earlier daemon are removed after a day.
  const day = Date.now() / 1000 - 25 * 60 * 60
  for (const name of await everythingIn(files.inside)) await utimes(join(files.inside, name), day, day)
  await utimes(files.inside, day, day)
  const other = await filesOf(t)
  const permit = { files: files.permit('late', 'write'), limits: LIMITS, owner: 'bob' }
  const share = new TimeSlicer({ clock: systemClock }).share(AbortSignal.timeout(60_000))
  const stdin = (async function* () {
    yield Buffer.from('late')
  })()
  await other.uploads.write(permit, wholeWrite(join(files.inside, 'late'), Buffer.from('late')) as Extract<FileCommand, { op: 'write' }>, {
    stdin,
    share,
  })
  assert.deepEqual(await everythingIn(files.inside), ['late'])
})

test('an upload without bytes does not count as unfinished', linuxOnly, async (t) => {
  const files = await filesOf(t)
  const sharing = new TimeSlicer({ clock: systemClock })
  for (const offset of [0, 1])
    for (let index = 0; index < 64; index++) {
      const name = `f${index}`
      const ending = new AbortController()
      const stdin = (async function* (): AsyncGenerator<Uint8Array> {
        ending.abort(new Error('ended'))
        yield Buffer.from('x')
      })()
      const permit = { files: files.permit(name, 'write'), limits: LIMITS, owner: 'bob' }
      const command = { op: 'write', path: join(files.inside, name), upload: UPLOAD, offset, parents: true, finish: null } as const
      const write = files.uploads.write(permit, command, { stdin, share: sharing.share(ending.signal) })
      // A command that waits for the one before it does not read its input.
      if (offset > 0) setImmediate(() => ending.abort(new Error('ended')))
      await assert.rejects(write, /ended/)
    }
  assert.deepEqual(await everythingIn(files.inside), [])
  const data = Buffer.from('data')
  assert.equal((await files.run(wholeWrite(join(files.inside, 'new'), data), { stdin: [data] })).code, null)
})

test(
  'a full disk fails only the upload of one file',
  { ...linuxOnly, ...(process.geteuid?.() === 0 ? {} : { skip: 'needs root to mount' }) },
  async (t) => {
    const files = await filesOf(t)
    const small = join(files.inside, 'small')
    await mkdir(small)
    if (spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'none', small]).status !== 0) return t.skip('nothing can be mounted')
    try {
      const data = randomBytes(900_000)
      const limits = { max_file_bytes: 10_000_000 }
      assert.equal((await files.run(wholeWrite(join(small, 'one'), data), { stdin: [data], limits })).code, null)
      assert.equal((await files.run(wholeWrite(join(small, 'two'), data), { stdin: [data], limits })).code, 'ENOSPC')
      assert.ok((await readFile(join(small, 'one'))).equals(data))
      const held = await open(small, 'r')
      await held.close()
    } finally {
      spawnSync('umount', [small])
    }
  },
)
